//! What must hold between the settings of agents, and the JSON file that says some of them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sluicegate_agents::Environment;

use super::super::duration;
use super::super::reader::Section;
use super::related::Given;
use super::{AgentMode, AgentSettings, PromptBy};

/// The largest JSON file that is read.
const MOST_BYTES: u64 = 1024 * 1024;

impl AgentSettings {
    pub(super) fn check(&self, section: &Section<'_>) {
        let sound = |names: [&str; 2]| names.iter().all(|name| section.sound(name));
        if self.min_workers > self.max_workers && sound(["min_workers", "max_workers"]) {
            let name = if section.has("min_workers") { "min_workers" } else { "max_workers" };
            let message = format!(
                "min_workers is {}, more than max_workers, which is {}",
                self.min_workers, self.max_workers
            );
            section.fault(name, &message, None);
        }
        if self.graceful_shutdown > self.execution_timeout
            && sound(["graceful_shutdown", "execution_timeout"])
        {
            let given = section.has("graceful_shutdown");
            let name = if given { "graceful_shutdown" } else { "execution_timeout" };
            let message = format!(
                "graceful_shutdown is {}, longer than execution_timeout, which is {}",
                duration::shown(self.graceful_shutdown),
                duration::shown(self.execution_timeout)
            );
            section.fault(name, &message, None);
        }
        let by_arg = self.prompt == PromptBy::Arg && section.sound("command");
        let has_prompt =
            |arguments: &[String]| arguments.iter().any(|arg| arg.contains("{prompt}"));
        if self.prompt == PromptBy::Stdin && section.sound("prompt") && has_prompt(&self.command) {
            let help =
                "set prompt = \"arg\", or leave {prompt} out: the program reads it on its input";
            let message = "has {prompt}, but agents.prompt is \"stdin\"";
            section.fault("command", message, Some(help.to_owned()));
        }
        if self.command.first().is_some_and(|program| program.contains("{prompt}")) {
            section.fault("command", "must not take the program's name from {prompt}", None);
        }
        if by_arg && !has_prompt(&self.command) {
            section.fault("prompt", "is \"arg\", but agents.command has no {prompt}", None);
        }
        if self.prompt == PromptBy::Arg && self.mode == AgentMode::Persistent {
            let message = "is \"arg\", and a process that stays is asked on its input: \"stdin\"";
            section.fault("prompt", message, None);
        }
    }

    /// Takes over what the JSON file says, if there is one.
    pub(super) fn take_over(&mut self, section: &Section<'_>, given: &mut Given) {
        let Some(path) = self.worker_pool_json.clone() else { return };
        let wrong = |message: &str| {
            // Both the name of the file and what stands in it may be anything.
            let words = format!("{}: {message}", path.display()).replace(char::is_control, " ");
            section.fault("worker_pool_json", &words, None);
        };
        let text = match read(&path) {
            Ok(text) => text,
            Err(message) => return wrong(&message),
        };
        match self.pool(Environment::default()).check_with_worker_pool(&text) {
            Ok(checked) => {
                self.set(&checked);
                given.add(&text);
            }
            Err(wrongs) => {
                // What the file itself says was looked at before.
                let of_file = ["command", "session_args", "resume_args", "prompt"];
                let of_json = wrongs.iter().filter(|one| !of_file.contains(&&*one.key));
                of_json.for_each(|one| wrong(&one.to_string()));
            }
        }
    }
}

/// The whole file, which is a small one.
fn read(path: &Path) -> Result<String, String> {
    let unreadable = |why: std::io::Error| format!("cannot be read: {why}");
    // A pipe would be waited for.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err("is no file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("is larger than {MOST_BYTES} bytes"));
    }
    Ok(text)
}

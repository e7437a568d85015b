//! Whether the program that agents run is there: looked at before anybody asks for it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::settings::AgentSettings;

/// Why the program of agents cannot be started, as far as that can be seen from here; `None` if nothing speaks
/// against it. It is looked for where the daemon would look.
#[must_use]
pub fn program_fault(settings: &AgentSettings) -> Option<String> {
    if let Some(folder) = settings.folder.as_deref().filter(|folder| !folder.is_dir()) {
        return Some(format!("agents.folder: there is no folder {}", folder.display()));
    }
    let name = settings.command.first()?;
    if name.contains('/') {
        let folder = settings.folder.as_deref().unwrap_or(Path::new(""));
        return fault_of(&folder.join(name)).map(|why| format!("agents.command: {name} {why}"));
    }
    let own = settings.env.get("PATH").map(|path| path.expose().to_owned());
    let path = own.or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let faults = folders.iter().map(|folder| fault_of(&folder.join(name)));
    match faults.min_by_key(rank) {
        Some(None) => None,
        Some(Some(why)) if why != MISSING => Some(format!("agents.command: {name} {why}")),
        _ => Some(format!(
            "agents.command: there is no program `{name}` in the folders of PATH; name it with its whole path"
        )),
    }
}

const MISSING: &str = "does not exist";

/// Nothing before something, and what is there before what is not.
fn rank(fault: &Option<String>) -> u8 {
    match fault.as_deref() {
        None => 0,
        Some(MISSING) => 2,
        Some(_) => 1,
    }
}

fn fault_of(file: &Path) -> Option<String> {
    match file.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(MISSING.to_owned()),
        Err(error) => Some(format!("cannot be looked at: {error}")),
        Ok(found) if !found.is_file() => Some("is no file".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some("is not executable".to_owned())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_the_daemon_would() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.txt");
        std::fs::write(&file, "x").unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let cases = [
            ("sh".to_owned(), None),
            ("/bin/sh".to_owned(), None),
            ("no-such-program".to_owned(), Some("agents.command: there is no program")),
            (path("notes.txt"), Some("is not executable")),
            (path("nothing"), Some("does not exist")),
            (path(""), Some("is no file")),
        ];
        for (command, expected) in cases {
            let settings = AgentSettings { command: vec![command.clone()], ..Default::default() };
            let fault = program_fault(&settings);
            match expected {
                None => assert_eq!(fault, None, "{command}"),
                Some(words) => {
                    assert!(fault.is_some_and(|fault| fault.contains(words)), "{command}")
                }
            }
        }
        let settings = AgentSettings { folder: Some(path("gone").into()), ..Default::default() };
        assert!(program_fault(&settings).is_some_and(|fault| fault.starts_with("agents.folder")));
    }
}

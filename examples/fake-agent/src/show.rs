//! What it was started with, as text.

use std::fs;
use std::io;

/// The lines of one kind of it.
pub(crate) fn show(what: &str) -> io::Result<String> {
    let mut lines: Vec<String> = match what {
        "env" => std::env::vars_os()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect(),
        "args" => return Ok(std::env::args().skip(1).collect::<Vec<_>>().join("\n")),
        "fds" => fds()?,
        "folder" => vec![std::env::current_dir()?.display().to_string()],
        "signals" => fs::read_to_string("/proc/self/status")?
            .lines()
            .filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn"))
            .map(str::to_owned)
            .collect(),
        other => vec![format!("nothing is known of {other}")],
    };
    lines.sort();
    Ok(lines.join("\n"))
}

/// The open files, but for the one that lists them.
fn fds() -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let to = fs::read_link(entry.path())?;
        let lists = format!("/proc/{}/fd", std::process::id());
        if to.as_os_str() != lists.as_str() {
            lines.push(format!("{} {}", entry.file_name().display(), to.display()));
        }
    }
    Ok(lines)
}

//! Programs of the workspace that tests of other packages start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The stand-in for a CLI agent, `examples/fake-agent`; built if it was not, or was changed since.
///
/// # Panics
/// It does not build.
#[must_use]
pub fn fake_agent() -> PathBuf {
    built("fake-agent", "examples/fake-agent", &["--package", "fake-agent"])
}

/// What keeps the processes of a program that cannot do it itself, such as a test; built in the same way.
///
/// # Panics
/// It does not build.
#[must_use]
pub fn agent_keeper() -> PathBuf {
    let package = ["--package", "sluicegate-executors", "--bin", "agent-keeper"];
    let features = ["--no-default-features", "--features", "process"];
    built("agent-keeper", "crates/executors/src", &[&package[..], &features].concat())
}

fn built(name: &str, sources: &str, arguments: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Beside the test that asks, which is in a folder of the same build.
    let test = std::env::current_exe().expect("a test is a program");
    let build =
        test.ancestors().find(|folder| folder.ends_with("deps") || folder.ends_with("examples"));
    let build =
        build.and_then(Path::parent).unwrap_or_else(|| panic!("{} is no test", test.display()));
    let program = build.join(name);
    let sources = newest(&root.join(sources));
    if changed(&program).is_none_or(|built| built < sources) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet"]).args(arguments).arg("--target-dir");
        command.arg(build.parent().unwrap_or(build)).current_dir(root);
        if build.ends_with("release") {
            command.arg("--release");
        }
        let built = command.status().expect("cargo runs");
        assert!(built.success(), "{name} does not build: {built}");
    }
    program
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}

fn newest(folder: &Path) -> SystemTime {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let times = entries.filter_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => Some(newest(&entry.path())),
        _ => changed(&entry.path()),
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

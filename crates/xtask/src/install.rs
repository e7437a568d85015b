//! Getting the machine ready: probe the table of needs, install what is missing, say what is left.
//!
//! Only missing things are installed, and nothing outside Debian's packages and the private Python
//! environment under the target folder is touched.

use std::path::Path;

use sluicegate_testkit::needs::{NEEDS, Need, Origin, PYTHON_FOLDER};

use crate::child::Child;
use crate::steps::{Done, Failure};

/// What to do about something that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Install,
    ReportOnly,
}

/// Whether this is the gate, where a missing thing is a failure.
pub(crate) fn on_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Makes sure of every need that `wanted` picks.
///
/// For a person a remaining gap is a printed skip, so that the tests that can run do run; on CI it
/// is a failure, so that a green run means that everything ran.
pub(crate) fn ensure(
    policy: Policy,
    target_folder: &str,
    wanted: impl Fn(&Need) -> bool,
) -> Result<Done, Failure> {
    let missing = || {
        NEEDS
            .iter()
            .filter(|n| wanted(n) && !n.is_met())
            .collect::<Vec<_>>()
    };
    let before = missing();
    if before.is_empty() {
        println!("    nothing is missing");
        return Ok(Done::Ok);
    }
    if policy == Policy::Install {
        for trouble in install(&before, target_folder) {
            println!("    {trouble}");
        }
    }
    let after = missing();
    if after.is_empty() {
        return Ok(Done::Ok);
    }
    let report = report(&after);
    if on_ci() {
        return Err(Failure::new(report));
    }
    Ok(Done::Skipped(format!(
        "{report}\nwhat needs none of these still runs"
    )))
}

/// One line for each missing thing: what for, and how to get it.
fn report(missing: &[&Need]) -> String {
    let mut lines = vec!["not on this machine:".to_owned()];
    lines.extend(missing.iter().map(|need| {
        let install = need.install_command();
        format!("  {}, needed for {}: {install}", need.name, need.purpose)
    }));
    lines.join("\n")
}

/// Installs as much as possible; returns what went wrong, in words.
fn install(missing: &[&Need], target_folder: &str) -> Vec<String> {
    let mut troubles = Vec::new();
    let packages = debian_packages(missing);
    if !packages.is_empty() {
        match as_root() {
            Some(root) => {
                if let Err(failure) = install_debian(&root, &packages) {
                    troubles.push(failure.why);
                }
            }
            None => troubles.push(
                "no right to install Debian packages: neither root nor sudo without a password"
                    .to_owned(),
            ),
        }
    }
    for need in missing {
        if let Origin::PyPi(requirement) = need.origin
            && let Err(failure) = install_python(requirement, target_folder)
        {
            troubles.push(failure.why);
        }
    }
    troubles
}

fn debian_packages(missing: &[&Need]) -> Vec<&'static str> {
    let mut packages = Vec::new();
    for need in missing {
        if let Origin::Debian(names) = need.origin {
            packages.extend(
                names
                    .iter()
                    .filter(|name| !packages.contains(*name))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
    }
    packages
}

/// The words to put before a command so that it runs as root, if there is a way.
fn as_root() -> Option<Vec<&'static str>> {
    let id = Child::new("id").arg("-u").read().unwrap_or_default();
    if id.trim_ascii() == b"0" {
        return Some(Vec::new());
    }
    let sudo = vec!["sudo", "-n"];
    Child::new("sudo")
        .args(["-n", "true"])
        .succeeds()
        .then_some(sudo)
}

fn install_debian(root: &[&str], packages: &[&str]) -> Result<(), Failure> {
    let privileged = |line: &[&str]| {
        let words: Vec<&str> = root.iter().chain(line).copied().collect();
        Child::new(words[0]).args(words[1..].iter().copied())
    };
    let apt = |verb: &[&str]| {
        let patience = [
            "-o",
            "Acquire::Retries=2",
            "-o",
            "Acquire::http::Timeout=30",
        ];
        let base = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"];
        let words: Vec<&str> = base.iter().chain(&patience).chain(verb).copied().collect();
        privileged(&words)
    };
    println!("    installing Debian packages: {}", packages.join(" "));
    // The lists may be old yet good enough, so a failed update is not the end.
    if let Err(failure) = apt(&["update"]).run() {
        println!("    {}", failure.why);
    }
    // Debian starts the servers that it installs; the tests start private ones on free ports, so
    // the packages' own stay down unless the machine already has a policy about that.
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let denies = !policy.exists();
    if denies {
        let deny = format!(
            "printf '#!/bin/sh\\nexit 101\\n' > {0} && chmod 755 {0}",
            policy.display()
        );
        privileged(&["sh", "-c", &deny]).run()?;
    }
    let install = ["install", "-y", "--no-install-recommends"];
    let words: Vec<&str> = install.iter().chain(packages).copied().collect();
    let result = apt(&words).run();
    if denies {
        privileged(&["rm", "-f", &policy.display().to_string()]).run()?;
    }
    result
}

fn install_python(requirement: &str, target_folder: &str) -> Result<(), Failure> {
    println!("    installing the Python package {requirement} into {PYTHON_FOLDER}");
    let folder = Path::new(target_folder).join(PYTHON_FOLDER);
    let folder = folder.display();
    Child::new("python3")
        .args(["-m", "venv"])
        .arg(folder.to_string())
        .run()?;
    Child::new(&format!("{folder}/bin/pip"))
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            requirement,
        ])
        .run()
}

#[cfg(test)]
mod tests {
    use super::{debian_packages, report};
    use sluicegate_testkit::needs::{Need, Origin, Probe, User};

    const fn need(name: &'static str, origin: Origin) -> Need {
        Need {
            name,
            purpose: "a test",
            probe: Probe::Program(&[]),
            origin,
            users: &[User::Bench],
        }
    }

    #[test]
    fn each_package_is_asked_for_once() {
        let one = need("one", Origin::Debian(&["a", "b"]));
        let two = need("two", Origin::PyPi("p==1"));
        let three = need("three", Origin::Debian(&["b", "c"]));
        assert_eq!(debian_packages(&[&one, &two, &three]), ["a", "b", "c"]);
    }

    #[test]
    fn the_report_says_what_for_and_how() {
        let one = need("one", Origin::Debian(&["a", "b"]));
        assert_eq!(
            report(&[&one]),
            "not on this machine:\n  one, needed for a test: apt-get install a b"
        );
    }
}

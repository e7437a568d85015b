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
    let missing = || NEEDS.iter().filter(|n| wanted(n) && !n.is_met()).collect::<Vec<_>>();
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
    Ok(Done::Skipped(format!("{report}\nwhat needs none of these still runs")))
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
            Some(root) => troubles.extend(install_debian(&root, &packages)),
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

/// The packages of all Debian rows, each once.
fn debian_packages(missing: &[&Need]) -> Vec<&'static str> {
    let mut packages = Vec::new();
    for need in missing {
        let Origin::Debian(names) = need.origin else {
            continue;
        };
        for name in names {
            if !packages.contains(name) {
                packages.push(*name);
            }
        }
    }
    packages
}

/// The words to put before a command so that it runs as root, if there is a way.
fn as_root() -> Option<Vec<&'static str>> {
    if nix::unistd::getuid().is_root() {
        return Some(Vec::new());
    }
    let sudo = vec!["sudo", "-n"];
    Child::new("sudo").args(["-n", "true"]).succeeds().then_some(sudo)
}

/// Installs Debian packages, all in one go; when that fails, one by one, so that a package which
/// this Debian does not have costs no other.
fn install_debian(root: &[&str], packages: &[&str]) -> Vec<String> {
    println!("    installing Debian packages: {}", packages.join(" "));
    // The lists may be old yet good enough, so a failed update is not the end.
    let updated = apt(root, &["update"]).run();
    let mut troubles: Vec<String> = updated.err().map(|failure| failure.why).into_iter().collect();
    let policy = match DeniedStarts::begin(root) {
        Ok(policy) => policy,
        Err(failure) => return vec![failure.why],
    };
    let install = |packages: &[&str]| {
        let options = ["install", "-y", "--no-install-recommends"];
        let words: Vec<&str> = options.iter().chain(packages).copied().collect();
        apt(root, &words).run()
    };
    if install(packages).is_err() {
        let failed = packages.iter().filter_map(|package| install(&[*package]).err());
        troubles.extend(failed.map(|failure| failure.why));
    }
    troubles.extend(policy.end().err().map(|failure| failure.why));
    troubles
}

fn apt(root: &[&str], words: &[&str]) -> Child {
    const BASE: &[&str] = &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"];
    const PATIENCE: &[&str] = &["-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"];
    privileged(root, &[BASE, PATIENCE, words].concat())
}

fn privileged(root: &[&str], words: &[&str]) -> Child {
    let words = [root, words].concat();
    Child::new(words[0]).args(words[1..].iter().copied())
}

/// While it lasts, Debian does not start the servers that it installs: the tests start private ones
/// on free ports. A machine that has a policy about that already keeps its own.
struct DeniedStarts<'a> {
    root: &'a [&'a str],
    ours: bool,
}

impl<'a> DeniedStarts<'a> {
    const POLICY: &'static str = "/usr/sbin/policy-rc.d";

    fn begin(root: &'a [&'a str]) -> Result<DeniedStarts<'a>, Failure> {
        let ours = !Path::new(Self::POLICY).exists();
        if ours {
            let script = "printf '#!/bin/sh\\nexit 101\\n' > \"$1\" && chmod 755 \"$1\"";
            privileged(root, &["sh", "-c", script, "sh", Self::POLICY]).run()?;
        }
        Ok(DeniedStarts { root, ours })
    }

    fn end(self) -> Result<(), Failure> {
        if !self.ours {
            return Ok(());
        }
        privileged(self.root, &["rm", "-f", Self::POLICY]).run()
    }
}

fn install_python(requirement: &str, target_folder: &str) -> Result<(), Failure> {
    println!("    installing the Python package {requirement} into {PYTHON_FOLDER}");
    let folder = Path::new(target_folder).join(PYTHON_FOLDER);
    let folder = folder.display();
    Child::new("python3").args(["-m", "venv"]).arg(folder.to_string()).run()?;
    Child::new(&format!("{folder}/bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", requirement])
        .run()
}

#[cfg(test)]
mod tests {
    use super::{debian_packages, report};
    use sluicegate_testkit::needs::{Need, Origin, Probe, User};

    const fn need(name: &'static str, origin: Origin) -> Need {
        Need { name, purpose: "a test", probe: Probe::Program(&[]), origin, users: &[User::Bench] }
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

//! What tests and benchmarks need beyond Rust, as one table.
//!
//! A crate whose tests need another program adds a row to [`NEEDS`] and nothing else: `cargo xtask`
//! probes every row that applies, installs what is missing where it may, and prints the command to
//! run where it may not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One thing that must be on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The short name people use for it.
    pub name: &'static str,
    /// What it is needed for, as it reads after "needed for".
    pub purpose: &'static str,
    /// How to tell whether it is there.
    pub probe: Probe,
    /// Where it comes from.
    pub origin: Origin,
    /// Who needs it.
    pub users: &'static [User],
}

/// How to tell whether a need is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// One of these programs exists: a bare name is looked up on `PATH` and in the system's
    /// administration folders, a path may hold one `*` for a whole folder name.
    Program(&'static [&'static str]),
    /// This command ends with success.
    Runs(&'static [&'static str]),
    /// The package's program lies in the private Python environment, see [`python_program`].
    Python(&'static str),
}

/// Where a need is installed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Debian packages of these names.
    Debian(&'static [&'static str]),
    /// A pinned requirement from the Python package index, into the private environment.
    PyPi(&'static str),
}

/// Who needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The tests of this package.
    TestsOf(&'static str),
    /// `cargo xtask bench`.
    Bench,
    /// `cargo xtask brokers NAME`.
    Broker(&'static str),
}

/// The folder, under cargo's target folder, of the private Python environment.
pub const PYTHON_FOLDER: &str = "xtask-python";

const TESTKIT: User = User::TestsOf("sluicegate-testkit");
const XTASK: User = User::TestsOf("xtask");
const SOURCES: User = User::TestsOf("sluicegate-sources");
const CONSUMERS: User = User::TestsOf("sluicegate-consumers");
const DAEMON: User = User::TestsOf("sluicegate");

/// The table. Order matters where one row's installation uses another row.
pub const NEEDS: &[Need] = &[
    Need {
        name: "valgrind",
        purpose: "instruction counts in benchmarks",
        probe: Probe::Program(&["valgrind"]),
        origin: Origin::Debian(&["valgrind"]),
        users: &[User::Bench],
    },
    Need {
        name: "setpriv",
        purpose: "ending private brokers together with the process that started them",
        probe: Probe::Program(&["setpriv"]),
        origin: Origin::Debian(&["util-linux"]),
        users: &[
            TESTKIT,
            XTASK,
            SOURCES,
            CONSUMERS,
            DAEMON,
            User::Bench,
            User::Broker("rabbitmq"),
            User::Broker("nats"),
            User::Broker("postgres"),
            User::Broker("activemq"),
            User::Broker("sqs"),
        ],
    },
    Need {
        name: "rabbitmq",
        purpose: "tests against RabbitMQ",
        probe: Probe::Program(&["/usr/lib/rabbitmq/bin/rabbitmq-server"]),
        origin: Origin::Debian(&["rabbitmq-server"]),
        users: &[TESTKIT, SOURCES, CONSUMERS, DAEMON, User::Bench, User::Broker("rabbitmq")],
    },
    Need {
        name: "nats",
        purpose: "tests against NATS",
        probe: Probe::Program(&["nats-server"]),
        origin: Origin::Debian(&["nats-server"]),
        users: &[TESTKIT, XTASK, SOURCES, CONSUMERS, DAEMON, User::Broker("nats")],
    },
    Need {
        name: "postgres",
        purpose: "tests against PostgreSQL",
        probe: Probe::Program(&["/usr/lib/postgresql/*/bin/postgres"]),
        origin: Origin::Debian(&["postgresql"]),
        users: &[TESTKIT, SOURCES, DAEMON, User::Bench, User::Broker("postgres")],
    },
    Need {
        name: "java",
        purpose: "running ActiveMQ",
        probe: Probe::Program(&["java"]),
        origin: Origin::Debian(&["default-jre-headless"]),
        users: &[TESTKIT, SOURCES, DAEMON, User::Broker("activemq")],
    },
    Need {
        name: "activemq",
        purpose: "tests against ActiveMQ over STOMP",
        probe: Probe::Program(&["/usr/share/activemq/bin/activemq.jar"]),
        origin: Origin::Debian(&["activemq"]),
        users: &[TESTKIT, SOURCES, DAEMON, User::Broker("activemq")],
    },
    Need {
        name: "python3-venv",
        purpose: "installing ministack",
        probe: Probe::Runs(&["python3", "-c", "import ensurepip, venv"]),
        origin: Origin::Debian(&["python3", "python3-venv"]),
        users: &[TESTKIT, SOURCES, DAEMON, User::Broker("sqs")],
    },
    Need {
        name: "ministack",
        purpose: "tests against SQS",
        probe: Probe::Python("ministack"),
        origin: Origin::PyPi("ministack==1.5.33"),
        users: &[TESTKIT, SOURCES, DAEMON, User::Broker("sqs")],
    },
];

impl Need {
    /// Whether it is there now.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.probe {
            Probe::Program(candidates) => candidates.iter().any(|c| find_program(c).is_some()),
            Probe::Runs(command) => runs(command),
            Probe::Python(program) => python_program(program).is_some(),
        }
    }

    /// The command a person types to get it.
    #[must_use]
    pub fn install_command(&self) -> String {
        match self.origin {
            Origin::Debian(packages) => format!("apt-get install {}", packages.join(" ")),
            Origin::PyPi(requirement) => format!(
                "python3 -m venv target/{PYTHON_FOLDER} && \
                 target/{PYTHON_FOLDER}/bin/pip install {requirement}"
            ),
        }
    }
}

/// Finds a program by bare name (on `PATH`, then where Debian keeps servers) or by path, in which
/// one `*` stands for a whole folder name and the last match in order wins.
#[must_use]
pub fn find_program(candidate: &str) -> Option<PathBuf> {
    if let Some((before, after)) = candidate.split_once("/*/") {
        let mut found: Vec<PathBuf> = std::fs::read_dir(before)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().join(after)))
            .filter(|path| path.is_file())
            .collect();
        found.sort();
        return found.pop();
    }
    if candidate.contains('/') {
        return Some(PathBuf::from(candidate)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(candidate))
        .find(|path| path.is_file())
}

/// Finds a program of the private Python environment: the environment lies in cargo's target
/// folder, and so does the running test or command, at some depth.
#[must_use]
pub fn python_program(name: &str) -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    here.ancestors()
        .map(|folder| folder.join(PYTHON_FOLDER).join("bin").join(name))
        .find(|path| path.is_file())
}

fn runs(command: &[&str]) -> bool {
    let Some((program, arguments)) = command.split_first() else {
        return false;
    };
    Command::new(Path::new(program))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::{NEEDS, Origin, Probe, find_program, runs};

    #[test]
    fn names_are_unique_and_every_row_has_a_user() {
        for (index, need) in NEEDS.iter().enumerate() {
            assert!(!need.users.is_empty(), "{} is needed by nobody", need.name);
            assert!(
                NEEDS[..index].iter().all(|other| other.name != need.name),
                "{} has two rows",
                need.name
            );
        }
    }

    #[test]
    fn python_rows_are_pinned_and_probed_where_they_are_installed() {
        for need in NEEDS {
            if let Origin::PyPi(requirement) = need.origin {
                assert!(requirement.contains("=="), "{requirement} is not pinned");
                assert!(matches!(need.probe, Probe::Python(_)), "{}", need.name);
            }
        }
    }

    #[test]
    fn programs_are_found_by_name_by_path_and_by_pattern() {
        let cases = [
            ("sh", true),
            ("/bin/sh", true),
            ("/usr/*/sh", true),
            ("no-such-program-anywhere", false),
            ("/no/such/program", false),
            ("/no/such/*/program", false),
        ];
        for (candidate, there) in cases {
            assert_eq!(find_program(candidate).is_some(), there, "{candidate}");
        }
    }

    #[test]
    fn a_failing_or_absent_command_does_not_count_as_running() {
        assert!(runs(&["true"]));
        assert!(!runs(&["false"]));
        assert!(!runs(&["no-such-program-anywhere"]));
        assert!(!runs(&[]));
    }
}

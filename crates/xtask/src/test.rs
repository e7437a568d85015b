//! `cargo xtask test`: everything that proves the code, from a bare machine with Rust on.

use std::time::Duration;

use sluicegate_testkit::brokers::Kind;
use sluicegate_testkit::needs::{Need, User, find_program};

use crate::brokers::ForTests;
use crate::child::Child;
use crate::install::{self, Policy};
use crate::steps::{Done, Failure, Steps, Stopped};
use crate::workspace::{Package, Target, Workspace};

/// What to test.
#[derive(Debug)]
pub(crate) struct Options {
    /// Install nothing, only say what is missing.
    pub(crate) no_install: bool,
    /// Test this package alone.
    pub(crate) package: Option<String>,
    /// Passed to the test runner. With any, only the tests step runs.
    pub(crate) arguments: Vec<String>,
}

impl Options {
    /// All of it, as the gate runs it.
    pub(crate) fn everything() -> Options {
        Options { no_install: false, package: None, arguments: Vec::new() }
    }

    fn policy(&self) -> Policy {
        if self.no_install { Policy::ReportOnly } else { Policy::Install }
    }

    fn picks(&self, package: &str) -> bool {
        self.package.as_deref().is_none_or(|only| only == package)
    }

    fn needs(&self, need: &Need) -> bool {
        need.users.iter().any(|user| matches!(user, User::TestsOf(name) if self.picks(name)))
    }

    /// `-p NAME` or `--workspace`.
    fn scope(&self) -> Vec<String> {
        match &self.package {
            Some(name) => vec!["-p".to_owned(), name.clone()],
            None => vec!["--workspace".to_owned()],
        }
    }
}

/// The packages whose tests share brokers.
const BROKERED: &[&str] = &["sluicegate-sources", "sluicegate-consumers", "sluicegate"];
/// The package whose interleaving models are checked.
const MODELLED: &str = "sluicegate-tasks";
/// The services under `examples/`, and the broker that each brings along, if it needs one.
const SERVICES: &[(&str, Option<Kind>)] = &[
    ("course-subscriptions", None),
    ("order-service", Some(Kind::RabbitMq)),
    ("shipment-service", Some(Kind::Nats)),
];
/// With its build.
const SERVICE_LIMIT: Duration = Duration::from_secs(300);
/// An example that runs longer than this hangs.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(60);

/// Runs the steps of the test command.
pub(crate) fn run(options: &Options, steps: &mut Steps) -> Result<(), Stopped> {
    let mut workspace = None;
    steps.run("needs", "cargo xtask test --no-install", || {
        let read = Workspace::read()?;
        if let Some(name) = options.package.as_deref().filter(|name| read.package(name).is_none()) {
            return Err(Failure::new(format!("the workspace has no package `{name}`")));
        }
        let done = install::ensure(options.policy(), &read.target_directory, |n| options.needs(n));
        workspace = Some(read);
        done
    })?;
    let workspace = workspace.ok_or(Stopped)?;
    let mut brokers = None;
    if BROKERED.iter().any(|package| options.picks(package)) {
        steps.run("brokers", "cargo xtask brokers", || {
            brokers = Some(ForTests::start()?);
            Ok(Done::Ok)
        })?;
    }
    let variables = brokers.iter().flat_map(ForTests::variables);
    let tests = variables.fold(tests(options), |tests, (name, url)| tests.env(&name, url));
    steps.child("tests", &tests)?;
    drop(brokers);
    if !options.arguments.is_empty() {
        return Ok(());
    }
    let picked: Vec<&Package> =
        workspace.packages.iter().filter(|package| options.picks(&package.name)).collect();
    if picked.iter().any(|package| package.has_library()) {
        steps.child("doctests", &Child::cargo("test --doc").args(options.scope()))?;
    }
    if picked.iter().any(|package| package.examples().next().is_some()) {
        let build = Child::cargo("build --examples").args(options.scope());
        steps.child("examples", &build)?;
    }
    for package in &picked {
        for example in package.examples() {
            let child = run_example(package, example);
            let name = format!("example {}", example.name);
            steps.run(&name, &child.to_string(), || {
                child.run_within(EXAMPLE_LIMIT).map(|()| Done::Ok)
            })?;
        }
    }
    for (service, kind) in SERVICES.iter().filter(|(service, _)| options.picks(service)) {
        let child = Child::cargo("run --quiet -p").arg(*service);
        steps.run(&format!("example {service}"), &child.to_string(), || {
            match kind.map_or(Ok(()), Kind::installed) {
                Err(missing) if !install::on_ci() => Ok(Done::Skipped(missing.to_string())),
                _ => child.run_within(SERVICE_LIMIT).map(|()| Done::Ok),
            }
        })?;
    }
    if options.picks(MODELLED) && workspace.package(MODELLED).is_some() {
        models(&workspace, steps)?;
    }
    Ok(())
}

/// The test runner: nextest where it is installed, else cargo's own.
fn tests(options: &Options) -> Child {
    let mut child = if find_program("cargo-nextest").is_some() {
        let profile = if install::on_ci() { "ci" } else { "default" };
        Child::cargo("nextest run --profile").arg(profile)
    } else {
        // Doctests are a step of their own.
        Child::cargo("test --no-fail-fast --lib --bins --tests")
    };
    child = child.args(options.scope());
    if !options.arguments.is_empty() {
        child = child.arg("--").args(options.arguments.iter().cloned());
    }
    child
}

fn run_example(package: &Package, example: &Target) -> Child {
    let child =
        Child::cargo("run --quiet -p").arg(&package.name).arg("--example").arg(&example.name);
    if example.required_features.is_empty() {
        return child;
    }
    child.arg("--features").arg(example.required_features.join(","))
}

/// The interleaving models: another build of the kernel, so in a target folder of its own.
fn models(workspace: &Workspace, steps: &mut Steps) -> Result<(), Stopped> {
    let child = Child::cargo("test -p")
        .arg(MODELLED)
        .args(["--release", "--lib", "--", "loom"])
        .env("RUSTFLAGS", "--cfg sluicegate_loom")
        .env("CARGO_TARGET_DIR", format!("{}/loom", workspace.target_directory));
    let line = child.to_string();
    steps.run("models", &line, || {
        if !has_models() {
            let why = format!("{MODELLED} has no module with `loom` in its name");
            return Ok(Done::Skipped(why));
        }
        println!("    {line}");
        let mut passed = 0;
        child.run_watched(|line| passed += passed_in(line))?;
        if passed == 0 {
            return Err(Failure::new("no interleaving model ran: none has `loom` in its path"));
        }
        Ok(Done::Ok)
    })
}

/// Whether the modelled package has a module of models. From its first one on, a run of none is a
/// failure.
fn has_models() -> bool {
    let search = ["grep", "--untracked", "--quiet", "-e", "mod [a-z_]*loom"];
    Child::new("git").args(search).args(["--", "crates/tasks/src"]).succeeds()
}

/// How many tests a closing line of cargo's test runner says have passed.
fn passed_in(line: &str) -> u64 {
    line.strip_prefix("test result: ")
        .and_then(|rest| rest.split_once(". "))
        .and_then(|(_, counts)| counts.split_once(" passed"))
        .and_then(|(count, _)| count.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Options, passed_in, run_example};
    use crate::workspace::Workspace;
    use sluicegate_testkit::needs::NEEDS;

    #[test]
    fn closing_lines_are_counted() {
        let cases = [
            ("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured", 5),
            ("test result: FAILED. 12 passed; 1 failed; 0 ignored", 12),
            ("test loom::permits ... ok", 0),
            ("running 3 tests", 0),
        ];
        for (line, count) in cases {
            assert_eq!(passed_in(line), count, "{line}");
        }
    }

    #[test]
    fn one_package_asks_only_for_its_own_needs() {
        let of = |package: Option<&str>| {
            let options = Options { package: package.map(str::to_owned), ..Options::everything() };
            NEEDS.iter().filter(|need| options.needs(need)).map(|n| n.name).collect::<Vec<_>>()
        };
        assert_eq!(of(Some("sluicegate-schedule")), Vec::<&str>::new());
        assert!(of(Some("sluicegate-testkit")).contains(&"rabbitmq"));
        assert!(of(None).contains(&"rabbitmq"));
        assert!(!of(None).contains(&"valgrind"));
    }

    #[test]
    fn examples_come_with_the_features_they_require() {
        let json = br#"{"target_directory": "t", "packages": [{"name": "p", "targets": [
            {"name": "lib", "kind": ["lib"]},
            {"name": "plain", "kind": ["example"]},
            {"name": "rich", "kind": ["example"], "required-features": ["a", "b"]}]}]}"#;
        let workspace = Workspace::parse(json).unwrap();
        let package = workspace.package("p").unwrap();
        let lines: Vec<String> =
            package.examples().map(|e| run_example(package, e).to_string()).collect();
        assert_eq!(
            lines,
            [
                "cargo run --quiet -p p --example plain",
                "cargo run --quiet -p p --example rich --features a,b"
            ]
        );
        assert!(package.has_library());
    }
}

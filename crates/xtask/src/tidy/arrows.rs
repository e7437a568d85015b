//! Which crate may know which: the arrows of the design, as a table.

use super::Finding;
use crate::workspace::{Dependency, Package, Workspace};

/// The crates that one crate may depend on.
#[derive(Clone, Copy)]
enum May {
    /// These of the workspace, and any from outside.
    Know(&'static [&'static str]),
    /// Nobody, neither inside nor outside.
    KnowNothing,
    /// Anyone: the crates at the edge.
    KnowAll,
}

/// The table. `sluicegate-` is left out of the names.
const ARROWS: &[(&str, May)] = &[
    ("schedule", May::KnowNothing),
    // The async shell of the schedule lives in `tasks`, for router, agents and event store alike.
    ("tasks", May::Know(&["schedule"])),
    ("dispatch", May::Know(&["tasks", "schedule"])),
    // Whoever blocks a thread, such as a writer of a file, does so in a task group.
    // The event store is a queue too.
    ("sources", May::Know(&["dispatch", "event-store", "postgres-link", "sqlite-file", "tasks"])),
    // The one writer of a file, for the queue and the events that may share it.
    ("sqlite-file", May::Know(&["tasks"])),
    // The way to a database, for the queues and the events in it.
    ("postgres-link", May::Know(&[])),
    ("executors", May::Know(&["dispatch", "tasks", "schedule"])),
    // Its declarations are those of a broker, which only `sources` knows.
    ("consumers", May::Know(&["dispatch", "sources", "tasks", "schedule"])),
    ("agents", May::Know(&["tasks", "schedule", "executors"])),
    ("event-store", May::Know(&["postgres-link", "sqlite-file", "tasks"])),
    ("server", May::KnowAll),
    ("sluicegate", May::KnowAll),
    ("lint", May::Know(&[])),
    // The seams whose conformance suites it holds, and what its endpoint runs on.
    ("testkit", May::Know(&["dispatch", "event-store", "tasks"])),
    ("sim", May::KnowAll),
    ("bench", May::KnowAll),
    ("xtask", May::Know(&["testkit"])),
    // Services as a user writes them, which bring a broker along to be run at once.
    ("order-service", May::Know(&["consumers", "sources", "testkit"])),
    ("shipment-service", May::Know(&["consumers", "sources", "testkit"])),
    // One that keeps events, through the front.
    ("course-subscriptions", May::Know(&["sluicegate"])),
    // A stand-in for an agent knows nothing of who runs it.
    ("fake-agent", May::Know(&[])),
];

/// Finds arrows that the table does not have.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let name = short(&package.name);
    let manifest = format!("crates/{name}/Cargo.toml");
    let Some((_, may)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        let message = format!("no arrows for `{name}`: add a row to the table in tidy/arrows.rs");
        return vec![Finding::new(&manifest, 0, message)];
    };
    let forbidden = |dependency: &&Dependency| !allows(*may, name, dependency);
    package
        .dependencies
        .iter()
        .filter(forbidden)
        .map(|dependency| {
            let message =
                format!("`{name}` must not know `{}`: {}", short(&dependency.name), words(*may));
            Finding::new(&manifest, 0, message)
        })
        .collect()
}

fn allows(may: May, name: &str, dependency: &Dependency) -> bool {
    let inside = dependency.path.is_some();
    let other = short(&dependency.name);
    if dependency.kind.as_deref() == Some("dev") && (!inside || other == "testkit" || other == name)
    {
        return true;
    }
    match may {
        May::KnowNothing => false,
        May::Know(others) => !inside || others.contains(&other),
        May::KnowAll => true,
    }
}

fn words(may: May) -> String {
    match may {
        May::KnowNothing => "it knows nobody, and no crate from outside".to_owned(),
        May::Know([]) => "it knows no crate of the workspace".to_owned(),
        May::Know(others) => format!("it knows {} only", others.join(", ")),
        May::KnowAll => "it knows all".to_owned(),
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("sluicegate-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::workspace::Workspace;

    fn found(package: &str, dependency: &str, kind: &str, inside: bool) -> Vec<String> {
        let kind = if kind.is_empty() { "null".to_owned() } else { format!("\"{kind}\"") };
        let path = if inside { r#", "path": "/x""# } else { "" };
        let json = format!(
            r#"{{"target_directory": "t", "packages": [{{"name": "{package}", "dependencies":
                [{{"name": "{dependency}", "kind": {kind}{path}}}]}}]}}"#
        );
        let workspace = Workspace::parse(json.as_bytes()).unwrap();
        check(&workspace).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_outside_the_table_are_found() {
        let cases = [
            ("sluicegate-tasks", "sluicegate-schedule", "", true, 0),
            ("sluicegate-tasks", "tokio", "", false, 0),
            ("sluicegate-tasks", "sluicegate-dispatch", "", true, 1),
            ("sluicegate-tasks", "sluicegate-dispatch", "dev", true, 1),
            ("sluicegate-tasks", "sluicegate-testkit", "dev", true, 0),
            ("sluicegate-tasks", "sluicegate-testkit", "", true, 1),
            ("sluicegate-schedule", "sluicegate-tasks", "", true, 1),
            ("sluicegate-schedule", "rand", "", false, 1),
            ("sluicegate-schedule", "rand", "build", false, 1),
            ("sluicegate-schedule", "proptest", "dev", false, 0),
            ("sluicegate-lint", "syn", "", false, 0),
            ("sluicegate-lint", "sluicegate-tasks", "", true, 1),
            ("sluicegate", "sluicegate-server", "", true, 0),
            ("sluicegate-unheard-of", "syn", "", false, 1),
        ];
        for (package, dependency, kind, inside, count) in cases {
            let found = found(package, dependency, kind, inside);
            assert_eq!(found.len(), count, "{package} -> {dependency} {kind}: {found:?}");
        }
    }

    #[test]
    fn a_finding_says_what_may_be_known() {
        assert_eq!(
            found("sluicegate-dispatch", "sluicegate-server", "", true),
            ["crates/dispatch/Cargo.toml:1: `dispatch` must not know `server`: \
              it knows tasks, schedule only"]
        );
    }
}

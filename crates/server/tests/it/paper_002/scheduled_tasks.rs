//! Scheduled Tasks Summary.

use sluicegate_server::chores;
use sluicegate_server::settings::RouterSettings;

use super::daemon;

#[tokio::test]
async fn the_table() {
    // § The config is synced every 5 minutes, unless told.
    assert_eq!(RouterSettings::default().sync_interval.as_secs(), 300);
    // § Stalled consumers are restarted every 60 seconds.
    assert_eq!(chores::STALLED_SOURCES.as_secs(), 60);
    // § Drained resources are removed every 10 seconds.
    assert_eq!(chores::LEFTOVERS.as_secs(), 10);
    // § Leaks are looked for every 30 seconds.
    assert_eq!(chores::LEAKS.as_secs(), 30);
    // § They run only while the daemon is initialised and not ending.
    let (daemon, _folder) = daemon("").await;
    assert_eq!(daemon.chores().len(), 0);
    daemon.begin().await.expect("it begins");
    let mut names: Vec<String> = daemon.chores();
    names.sort();
    let wanted = [
        "agent watcher",
        "drained pool remover",
        "failing message watcher",
        "incident watcher",
        "leak detector",
        "parked message watcher",
        "queue opener",
        "replay follower",
        "replay forgetter",
        "stalled source restarter",
        "state file watcher",
        "warning expirer",
    ];
    assert_eq!(names, wanted);
    daemon.shutdown().await;
    assert_eq!(daemon.chores().len(), 0);
}

//! The binary keeps the processes of agents, as what the daemon starts for that: `docs/rules.md#tree-2`.

use std::path::Path;
use std::process::{Command, Stdio};

use sluicegate::executors::process::{Exit, Keepers, Program, Spawner, TreeSignal};
use tokio::time::timeout;

use crate::stage::{BINARY, PATIENCE};

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_is_a_keeper() {
    let keepers = Keepers::of(Path::new(BINARY)).unwrap();
    for _ in 0..3 {
        let program = Program {
            command: "/bin/sh".into(),
            arguments: ["-c", "sleep 1000 & echo here; read line; exit 7"].map(Into::into).into(),
            environment: [("PATH".into(), "/bin:/usr/bin".into())].into(),
            folder: None,
            memory_limit: None,
        };
        let run = async {
            let tree = keepers.spawn(program).await.unwrap();
            assert_eq!(tree.read().await.unwrap(), "here\n");
            tree.close_input();
            assert_eq!(tree.exit().await, Exit::Code(7));
            tree.signal(TreeSignal::Kill);
            tree.gone().await;
        };
        timeout(PATIENCE, run).await.unwrap();
    }
}

#[test]
fn a_person_who_tries_it_is_told_what_it_is() {
    let keeper = || {
        let mut command = Command::new(BINARY);
        command.arg("__keep-processes");
        command
    };
    let tried = keeper().stdin(Stdio::null()).output().unwrap();
    assert_eq!(tried.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&tried.stderr).starts_with("keeps processes for the program"));
}

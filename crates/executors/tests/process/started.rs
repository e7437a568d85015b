//! What a program is started with, and why it is not: `docs/rules.md#tree-3`, `docs/rules.md#tree-5`.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use sluicegate_executors::process::{Exit, Program, Spawner, TreeSignal};

use crate::stage::{Stage, all, children, within};

/// What an agent says of itself.
async fn told(stage: &Stage, change: impl FnOnce(&mut Program), what: &str) -> Vec<String> {
    let mut program = stage.prompt(what);
    change(&mut program);
    let tree = stage.spawn(program).await;
    let answer: Value = serde_json::from_str(&all(&*tree).await).expect("an answer");
    assert_eq!(within(tree.exit()).await, Exit::Code(0));
    answer["result"].as_str().expect("text").lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_the_environment_that_it_is_given_and_no_other() {
    let stage = Stage::new();
    assert_eq!(told(&stage, |_| {}, "!print-env").await, [""; 0]);
    let change = |program: &mut Program| {
        program.environment = [("B".into(), "2 3".into()), ("A".into(), "".into())].into();
    };
    assert_eq!(told(&stage, change, "!print-env").await, ["A=", "B=2 3"]);
    // Whatever was there before.
    assert_eq!(told(&stage, |_| {}, "!print-env").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_three_open_files() {
    let stage = Stage::new();
    let _other = stage.begun("").await;
    for _ in 0..3 {
        let files = told(&stage, |_| {}, "!print-fds").await;
        let numbers: Vec<&str> =
            files.iter().map(|file| file.split_once(" pipe:").expect("a pipe").0).collect();
        assert_eq!(numbers, ["0", "1", "2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ignores_and_blocks_no_signal() {
    let stage = Stage::new();
    let signals = told(&stage, |_| {}, "!print-signals").await;
    let [blocked, ignored] = signals
        .iter()
        .map(|line| {
            let (_, mask) = line.split_once('\t').expect("a mask");
            // Without those for real time, of which the system has its own.
            u64::from_str_radix(mask, 16).expect("a mask") & 0x7fff_ffff
        })
        .collect::<Vec<_>>()[..]
    else {
        panic!("{signals:?}")
    };
    // Rust itself has its programs ignore SIGPIPE, number 13.
    assert_eq!((blocked, ignored), (0, 1 << 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_its_arguments_as_they_are() {
    let stage = Stage::new();
    let given = ["--x=\u{e9} 'b\" $C *", "!print-args"];
    let change = |program: &mut Program| program.arguments = given.map(Into::into).into();
    assert_eq!(told(&stage, change, "").await, given);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_in_its_folder() {
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let there = path.display().to_string();
    let change = |program: &mut Program| program.folder = Some(path);
    assert_eq!(told(&stage, change, "!print-folder").await, [there]);
    let here = std::env::current_dir().unwrap().display().to_string();
    assert_eq!(told(&stage, |_| {}, "!print-folder").await, [here]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_folder_is_found_by_its_own_path() {
    let stage = Stage::new();
    let change = |program: &mut Program| {
        let whole = std::path::PathBuf::from(&program.command);
        program.command = "fake-agent".into();
        program.environment = [("PATH".into(), whole.parent().unwrap().into())].into();
    };
    assert!(told(&stage, change, "!print-env").await[0].starts_with("PATH="));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_started_says_why() {
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("no-program"), "nothing").unwrap();
    std::fs::write(path("no-format"), "nothing").unwrap();
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path("no-format"), runs).unwrap();
    let cases = [
        (path("missing"), None, "No such file or directory"),
        ("not-to-be-found".to_owned(), None, "No such file or directory"),
        (path("no-program"), None, "Permission denied"),
        (folder.path().display().to_string(), None, "Permission denied"),
        (path("no-format"), None, "Exec format error"),
        (path("a\0b"), None, "cannot be started"),
        ("/bin/true".to_owned(), Some(path("nowhere")), "nowhere: No such file or directory"),
        ("/bin/true".to_owned(), Some(path("no-program")), "no-program: Not a directory"),
    ];
    for (command, folder, why) in cases {
        let program = Program {
            command: command.clone().into(),
            arguments: vec!["secret-argument".into()],
            environment: [("NAME".into(), "secret-value".into())].into(),
            folder: folder.map(Into::into),
            memory_limit: None,
        };
        let refused = within(stage.keepers.spawn(program)).await.err().expect(&command);
        let cause = refused.to_string();
        assert!(cause.contains(why) && cause.contains(&format!("`{command}`")), "{cause}");
        assert!(!cause.contains("secret"), "{cause}");
    }
    // And the keeper goes on.
    assert_eq!(children(std::process::id()).len(), 1);
    assert_eq!(told(&stage, |_| {}, "!print-env").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_too_long_are_refused() {
    let stage = Stage::new();
    for length in [3 << 20, 20 << 20] {
        let mut program = stage.prompt("");
        program.arguments.push("x".repeat(length).into());
        let refused = within(stage.keepers.spawn(program)).await.err().expect("too long");
        assert!(refused.cause.to_lowercase().contains("argument list too long"), "{refused}");
    }
    stage.begun("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_uses_more_memory_than_it_may_is_killed() {
    let stage = Stage::new();
    let start = async |first: &str| {
        let limited = Program { memory_limit: Some(50 << 20), ..stage.agent(first) };
        stage.spawn(limited).await
    };
    let (small, large) = (start("!fork 2").await, start("!fork 1 !leak 60MB").await);
    assert_eq!(within(large.exit()).await, Exit::Signal(9));
    within(large.gone()).await;
    let errors = large.errors();
    assert!(errors.starts_with("killed: it uses ") && errors.contains("50 MiB"), "{errors}");
    // It was looked at too.
    small.close_input();
    assert_eq!((within(small.exit()).await, small.errors()), (Exit::Code(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_that_of_the_whole_tree() {
    let stage = Stage::new();
    let small = stage.begun("").await;
    let large = stage.begun("!leak 60MB !fork 2").await;
    let seen = async {
        while large.memory() < 60 << 20 || small.memory() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(seen).await;
    assert!(small.memory() < 20 << 20, "{}", small.memory());
    assert!(large.memory() < 120 << 20, "{}", large.memory());
    large.signal(TreeSignal::Kill);
    within(large.gone()).await;
    assert_eq!(large.memory(), 0);
}

//! `sluicegate demo`.

use nix::sys::signal::Signal;

use crate::stage::Stage;

#[test]
fn the_demo_delivers_everything_in_order_and_says_so() {
    let stage = Stage::new();
    let demo = stage.run(&["demo", "--messages", "400", "--groups", "7"]);
    demo.check(0, &["400 messages in 7 groups", "--server http://127.0.0.1:", "p99"]);
    let last: Vec<&str> = demo.stdout.lines().rev().take(2).collect();
    assert_eq!(last, ["order violations 0", "delivered 400"], "{}", demo.stdout);
    assert_eq!(left(&stage), 0);
}

/// How many temporary files are left.
fn left(stage: &Stage) -> usize {
    std::fs::read_dir(stage.path("tmp")).expect("a folder").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let stage = Stage::new();
        let mut demo = stage.launch(&["demo", "--messages", "100000"]);
        while !demo.line().await.contains("published") {}
        assert_eq!(left(&stage), 1);
        demo.signal(signal);
        let (code, errors) = demo.ended().await;
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("ended early"), "{errors}");
        assert_eq!(left(&stage), 0);
    }
}

#[test]
fn the_demo_says_it_to_programs_too() {
    let stage = Stage::new();
    let demo = stage.run(&["demo", "--messages", "50", "--groups", "50", "--json"]);
    demo.check(0, &[]);
    let said: serde_json::Value = serde_json::from_str(&demo.stdout).expect("JSON and no more");
    for (name, expected) in [("delivered", 50), ("orderViolations", 0), ("parked", 0)] {
        assert_eq!(said[name], expected, "{name} of {said}");
    }
    assert_eq!(said["ok"], true);
}

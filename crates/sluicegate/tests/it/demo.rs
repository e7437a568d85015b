//! `sluicegate demo`.

use crate::stage::Stage;

#[test]
fn the_demo_delivers_everything_in_order_and_says_so() {
    let stage = Stage::new();
    let folder = stage.path("");
    let variables = [("TMPDIR", folder.to_str().expect("a plain name"))];
    let demo = stage.run_with(&["demo", "--messages", "400", "--groups", "7"], &variables, b"");
    demo.check(0, &["400 messages in 7 groups", "--server http://127.0.0.1:", "p99"]);
    let last: Vec<&str> = demo.stdout.lines().rev().take(2).collect();
    assert_eq!(last, ["order violations 0", "delivered 400"], "{}", demo.stdout);
    let left: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
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

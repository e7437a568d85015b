//! Each format, to the letter where others parse it.

use sluicegate_lint::report::{Format, render};
use sluicegate_lint::{Finding, Report, Rule};

use crate::workbench::{SPAWNS, Workbench};

#[test]
fn human_shows_the_line_and_what_to_write() {
    let bench = Workbench::new(&[("src/lib.rs", SPAWNS)]);
    let text = render(&bench.report(&[]), Format::Human { colour: false });
    let expected = "\
error[naked-spawn]: `tokio::spawn` starts a task that no group owns
 --> src/lib.rs:2:5
  |
2 |     tokio::spawn(work());
  |     ^^^^^^^^^^^^
  = help: submit it to a group: `group.submit(cx, |cx| async move { … })`

sluicegate-lint: 1 file checked, 1 finding
";
    assert_eq!(text, expected);
    let clean = render(&Report { findings: Vec::new(), files: 2 }, Format::Human { colour: true });
    assert_eq!(clean, "sluicegate-lint: 2 files checked, no findings\n");
}

#[test]
fn human_counts_characters_keeps_tabs_and_hides_control_characters() {
    let source = "fn f() {\n\tlet ä = \"\u{1b}[2J\u{202e}\"; tokio::spawn(g());\n}\n";
    let bench = Workbench::new(&[("src/lib.rs", source)]);
    let report = bench.report(&[]);
    assert_eq!(report.findings[0].column, 19);
    let text = render(&report, Format::Human { colour: false });
    assert!(text.contains("2 | \tlet ä = \"\u{fffd}[2J\u{fffd}\"; tokio::spawn(g());\n"), "{text}");
    assert!(text.contains(&format!("  | \t{}^^^^^^^^^^^^\n", " ".repeat(17))), "{text}");
    assert!(!text.contains('\u{1b}'));
    let coloured = render(&report, Format::Human { colour: true });
    assert!(coloured.starts_with("\u{1b}[1;31merror[naked-spawn]\u{1b}[0m"));
}

#[test]
fn json_is_exactly_as_promised() {
    let bench = Workbench::new(&[("src/lib.rs", SPAWNS)]);
    let text = render(&bench.report(&[]), Format::Json);
    let expected = "{\"findings\":[{\"rule\":\"naked-spawn\",\"path\":\"src/lib.rs\",\"line\":2,\
        \"column\":5,\"message\":\"`tokio::spawn` starts a task that no group owns\",\
        \"help\":\"submit it to a group: `group.submit(cx, |cx| async move { … })`\"}],\
        \"files\":1}\n";
    assert_eq!(text, expected);
    let clean = render(&Report::default(), Format::Json);
    assert_eq!(clean, "{\"findings\":[],\"files\":0}\n");
}

#[test]
fn sarif_has_what_services_require() {
    let bench = Workbench::new(&[("src/a b.rs", SPAWNS)]);
    let text = render(&bench.report(&[]), Format::Sarif);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["version"], "2.1.0");
    assert!(document["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let run = &document["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "sluicegate-lint");
    let rules = driver["rules"].as_array().unwrap();
    let ids: Vec<&str> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids, Rule::ALL.map(Rule::id));
    assert!(rules.iter().all(|rule| rule["shortDescription"]["text"].is_string()));
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "naked-spawn");
    assert_eq!(ids[result["ruleIndex"].as_u64().unwrap() as usize], "naked-spawn");
    assert_eq!(result["level"], "error");
    assert!(result["message"]["text"].as_str().unwrap().contains("tokio::spawn"));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/a%20b.rs");
    let expected = serde_json::json!({ "startLine": 2, "startColumn": 5, "endColumn": 17 });
    assert_eq!(place["region"], expected);
}

#[test]
fn github_annotations_are_escaped() {
    let finding = Finding {
        rule: Rule::LeakyPermit,
        path: "src/a,b:c%.rs".into(),
        line: 3,
        column: 7,
        width: 4,
        message: "100 %: a,\r\nb".to_owned(),
        help: "hold it".to_owned(),
        source_line: String::new(),
    };
    let text = render(&Report { findings: vec![finding], files: 1 }, Format::Github);
    let expected = "::error file=src/a%2Cb%3Ac%25.rs,line=3,col=7,endColumn=10,\
        title=leaky-permit::100 %25: a,%0D%0Ab%0Ahelp: hold it\n\
        sluicegate-lint: 1 file checked, 1 finding\n";
    assert_eq!(text, expected);
}

#[test]
fn findings_are_sorted_and_each_place_is_told_once() {
    let bench = Workbench::new(&[
        ("src/b.rs", "fn f() { std::mem::forget(std::thread::spawn(g)); tokio::spawn(g()); }"),
        ("src/a.rs", SPAWNS),
    ]);
    let report = bench.report(&["src", "src/a.rs"]);
    let places: Vec<_> =
        report.findings.iter().map(|f| (f.path.to_str().unwrap(), f.column, f.rule)).collect();
    let expected = [
        ("src/a.rs", 5, Rule::NakedSpawn),
        ("src/b.rs", 10, Rule::LeakyPermit),
        ("src/b.rs", 27, Rule::NakedSpawn),
        ("src/b.rs", 51, Rule::NakedSpawn),
    ];
    assert_eq!(places, expected);
}

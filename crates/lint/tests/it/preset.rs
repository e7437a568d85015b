//! The preset for clippy and the lint forbid the same.

use crate::workbench::Workbench;

const PRESET: &str = include_str!("../../preset/clippy.toml");

#[test]
fn whatever_the_preset_bans_the_lint_finds() {
    let preset: toml::Table = PRESET.parse().unwrap();
    let bans = preset["disallowed-methods"].as_array().unwrap();
    let paths: Vec<&str> = bans.iter().map(|ban| ban["path"].as_str().unwrap()).collect();
    // A scope is fine until it spawns, and then that is found.
    let found_inside = ["std::thread::scope", "rayon::scope"];
    for path in paths.into_iter().filter(|path| !found_inside.contains(path)) {
        let text = format!("fn f() {{\n    let taken = {path};\n}}\n");
        let bench = Workbench::new(&[("src/lib.rs", &text)]);
        assert_eq!(bench.findings(&[]).len(), 1, "{path}");
    }
}

#[test]
fn every_ban_says_what_to_do_instead() {
    let preset: toml::Table = PRESET.parse().unwrap();
    for table in ["disallowed-methods", "disallowed-types"] {
        for ban in preset[table].as_array().unwrap() {
            assert!(!ban["reason"].as_str().unwrap().is_empty(), "{ban}");
        }
    }
}

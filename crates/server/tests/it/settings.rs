//! What is right in a settings file, and what it means.

use sluicegate_server::settings::Settings;

fn read(text: &str) -> Settings {
    Settings::parse("sluicegate.toml", text, &|_| None).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn an_empty_file_is_the_same_as_none() {
    for text in ["", "\n# nothing\n", "[server]\n[http]\n[http.breaker]\n"] {
        assert_eq!(read(text), Settings::default(), "{text:?}");
    }
}

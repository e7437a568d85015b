//! What function bodies hide: modules of their own, and `include!`.
//!
//! Few files have either, and to walk every body for them would cost, so that the text is asked
//! first.

use syn::visit::{self, Visit};

use super::collect::{Collector, Cursor};
use super::files::has_word;
use crate::fragments::{self, Fragment};
use crate::names::types::plain;
use crate::testcode::is_cfg_test;

/// Whether a file may hide something, and under which names it includes files.
pub(super) struct Suspicion {
    pub(super) hides: bool,
    pub(super) includes: Vec<String>,
}

impl Suspicion {
    pub(super) fn of(text: &str, items: &[syn::Item]) -> Self {
        let mut includes = Vec::new();
        if text.contains("include") {
            includes.push("include".to_owned());
            // `use std::include as other;`
            let mut words = text.split(|char: char| !char.is_alphanumeric() && char != '_');
            while let Some(word) = words.next() {
                if word == "include" && words.next() == Some("as") {
                    includes.extend(words.next().map(str::to_owned));
                }
            }
        }
        let hides = !includes.is_empty() || words(text, "mod") > modules(items);
        Self { hides, includes }
    }
}

/// How often a word stands in the text; comments count too, which costs only time.
fn words(text: &str, word: &str) -> usize {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    let stands_alone = |(at, _): &(usize, &str)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let after = bytes.get(at + word.len());
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    };
    text.match_indices(word).filter(stands_alone).count()
}

fn modules(items: &[syn::Item]) -> usize {
    let of_item = |item: &syn::Item| match item {
        syn::Item::Mod(module) => {
            1 + module.content.as_ref().map_or(0, |(_, items)| modules(items))
        }
        _ => 0,
    };
    items.iter().map(of_item).sum()
}

/// The walk through one item's bodies.
pub(super) struct Search<'c, 'a> {
    pub(super) collector: &'c mut Collector<'a>,
    pub(super) cursor: &'c Cursor<'a>,
}

impl<'ast> Visit<'ast> for Search<'_, '_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(module) => self.collector.block_module(module, self.cursor),
            syn::Item::Fn(function) if is_cfg_test(&function.attrs) => {}
            syn::Item::Impl(block) if is_cfg_test(&block.attrs) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if self.collector.is_include(&call.path, self.cursor) {
            return self.collector.include(call, self.cursor);
        }
        if !has_word(call.tokens.clone(), &["include", "mod"]) {
            return;
        }
        let tokens = call.tokens.clone();
        let found = if call.path.is_ident("macro_rules") {
            fragments::of_rules(tokens)
        } else {
            fragments::of_macro(tokens)
        };
        let cursor = self.cursor.in_macro();
        let mut inner = Search { collector: self.collector, cursor: &cursor };
        for fragment in found {
            match fragment {
                Fragment::Expression(expression) => inner.visit_expr(&expression),
                Fragment::Statements(statements) => {
                    statements.iter().for_each(|statement| inner.visit_stmt(statement));
                }
            }
        }
    }

    // Neither holds code that runs.
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The last name of a macro's path.
pub(super) fn macro_name(path: &syn::Path) -> String {
    path.segments.last().map(|last| plain(&last.ident)).unwrap_or_default()
}

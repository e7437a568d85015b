//! From a `mod x;` or an `include!` to the file it means; what is not read is wanted.

use std::path::PathBuf;

use proc_macro2::Span;
use syn::spanned::Spanned as _;

use super::collect::{Collector, Cursor, Role};
use super::files::{included, module_files};
use super::hidden::macro_name;
use super::types::plain;
use crate::sources::{Found, Wanted};

impl<'a> Collector<'a> {
    /// The files of `mod x;`, among those read; what is not read is wanted.
    pub(super) fn files_of(
        &mut self,
        item: &syn::ItemMod,
        cursor: &Cursor<'a>,
    ) -> Vec<(usize, Role)> {
        let inline = cursor.folder.join("mod.rs");
        let beside = if cursor.inline { &inline } else { cursor.beside };
        let mut files = module_files(item, &cursor.folder, beside);
        if let Some(other) = &cursor.other_folder {
            files.usual.extend(module_files(item, other, beside).usual);
        }
        let named = self.found(&files.named).into_iter().map(|file| (file, Role::Root));
        let usual = self.found(&files.usual).into_iter().map(|file| (file, Role::Module));
        let found = named.chain(usual).collect();
        if cursor.test_only {
            return found;
        }
        let what = format!("mod {}", plain(&item.ident));
        let span = item.mod_token.span();
        let required = !cursor.in_macro;
        for named in files.named {
            self.want(vec![named], cursor.file, span, &what, required);
        }
        let required = required && files.needs_usual;
        self.want(files.usual, cursor.file, span, &what, required);
        found
    }

    pub(super) fn found(&self, paths: &[PathBuf]) -> Vec<usize> {
        let unit = |path: &PathBuf| match self.sources.find(path) {
            Found::Unit(unit) => Some(unit),
            Found::Broken | Found::Absent => None,
        };
        paths.iter().filter_map(unit).collect()
    }

    /// Asks for a file, unless one of the candidates is there.
    fn want(
        &mut self,
        candidates: Vec<PathBuf>,
        by: usize,
        span: Span,
        what: &str,
        required: bool,
    ) {
        let absent = |path: &PathBuf| matches!(self.sources.find(path), Found::Absent);
        if !candidates.is_empty() && candidates.iter().all(absent) {
            let what = what.to_owned();
            self.wanted.push(Wanted { by, span, what, candidates, required });
        }
    }

    pub(super) fn is_include(&self, path: &syn::Path, cursor: &Cursor<'a>) -> bool {
        self.suspicions[cursor.file].includes.contains(&macro_name(path))
    }

    /// Makes the items of the included file items of this module.
    pub(super) fn include(&mut self, call: &syn::Macro, cursor: &Cursor<'a>) {
        let package = self.index.modules[cursor.module].package;
        let folder = package.map(|package| self.manifests[package].folder.as_path());
        let Some(path) = included(call.tokens.clone(), cursor.beside, folder) else {
            return;
        };
        let Found::Unit(file) = self.sources.find(&path) else {
            if !cursor.test_only {
                self.want(vec![path], cursor.file, call.path.span(), "include!", !cursor.in_macro);
            }
            return;
        };
        if self.included.insert((file, cursor.module)) {
            let before = self.seats[file];
            self.load(file, cursor.module, cursor.test_only, Role::Root);
            if let Some(seat) = before.filter(|seat| !seat.test_only) {
                self.seats[file] = Some(seat);
            }
        }
    }
}

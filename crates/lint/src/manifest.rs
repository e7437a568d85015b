//! What a `Cargo.toml` tells about names: the package, its library, and renamed dependencies.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// One `Cargo.toml`, read leniently: what is missing or odd is cargo's business, not the lint's.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The folder that holds it.
    pub folder: PathBuf,
    /// Whether it has a `[workspace]` table.
    pub is_workspace: bool,
    /// Whether it has a `[package]` table.
    pub is_package: bool,
    /// The name under which other packages' code says this library.
    pub library: Option<String>,
    /// Where the library's root is, when not `src/lib.rs`.
    pub library_path: Option<PathBuf>,
    /// Where its libraries, programs, examples and build script are, as far as it says so.
    pub targets: Vec<PathBuf>,
    /// Dependencies under another name: alias → crate, both as code spells them.
    pub renames: HashMap<String, String>,
    inherited: Vec<String>,
}

impl Manifest {
    /// Reads the text of the manifest in `folder`.
    #[must_use]
    pub fn parse(folder: &Path, text: &str) -> Self {
        let table = text.parse::<Table>().unwrap_or_default();
        let package = table.get("package").and_then(Value::as_table);
        let library = table.get("lib").and_then(Value::as_table);
        let name = |table: Option<&Table>| {
            table.and_then(|table| table.get("name")).and_then(Value::as_str).map(in_code)
        };
        let mut manifest = Self {
            folder: folder.to_owned(),
            is_workspace: table.contains_key("workspace"),
            is_package: package.is_some(),
            library: name(library).or_else(|| name(package)),
            library_path: library
                .and_then(|table| table.get("path"))
                .and_then(Value::as_str)
                .map(|path| folder.join(path)),
            ..Self::default()
        };
        manifest.read_targets(&table);
        manifest.read_dependencies(&table);
        for kind in ["workspace", "target"] {
            let Some(table) = table.get(kind).and_then(Value::as_table) else {
                continue;
            };
            manifest.read_dependencies(table);
            for target in table.values().filter_map(Value::as_table) {
                manifest.read_dependencies(target);
            }
        }
        manifest
    }

    /// Takes over the names that `dep.workspace = true` inherits.
    pub fn inherit(&mut self, workspace: &Self) {
        for alias in std::mem::take(&mut self.inherited) {
            if let Some(real) = workspace.renames.get(&alias) {
                self.renames.insert(alias, real.clone());
            }
        }
    }

    /// Tests and benches are left out: they are test code wherever they are.
    fn read_targets(&mut self, table: &Table) {
        let path = |target: &Value| target.get("path").and_then(Value::as_str).map(str::to_owned);
        let mut paths: Vec<String> = table.get("lib").and_then(path).into_iter().collect();
        for kind in ["bin", "example"] {
            let targets = table.get(kind).and_then(Value::as_array);
            paths.extend(targets.into_iter().flatten().filter_map(path));
        }
        let build = table.get("package").and_then(|package| package.get("build"));
        paths.extend(build.and_then(Value::as_str).map(str::to_owned));
        self.targets = paths.iter().map(|path| self.folder.join(path)).collect();
    }

    fn read_dependencies(&mut self, table: &Table) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = table.get(kind).and_then(Value::as_table) else {
                continue;
            };
            for (alias, value) in dependencies {
                if let Some(real) = value.get("package").and_then(Value::as_str) {
                    self.renames.insert(in_code(alias), in_code(real));
                } else if value.get("workspace").and_then(Value::as_bool) == Some(true) {
                    self.inherited.push(in_code(alias));
                }
            }
        }
    }
}

fn in_code(name: &str) -> String {
    name.replace('-', "_")
}

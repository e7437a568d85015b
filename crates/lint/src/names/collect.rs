//! Reads all files into one [`Index`], and finds which file is which module.
//!
//! 1. Crate roots come first, and each file gets the place its first non-test `mod` gives it.
//! 2. A file that only test modules lead to is test code.
//! 3. A file that nothing leads to is a root of its own: it is checked all the same.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use syn::Item;

use super::items::{add_item, facts_of, methods_of_impl};
use super::resolve::{Place, Target};
use super::types::{TypeExpr, plain};
use super::{Index, Module, ModuleId, Name};
use crate::fragments;
use crate::manifest::Manifest;
use crate::testcode::is_test_only;

/// A file that parsed.
pub(crate) struct Parsed<'a> {
    pub(crate) path: &'a Path,
    pub(crate) syntax: &'a syn::File,
}

/// Where a file belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) module: ModuleId,
    pub(crate) test_only: bool,
}

/// An `impl` whose type may live in another module: attached when all names are known.
struct Methods {
    module: ModuleId,
    of: TypeExpr,
    methods: Vec<(String, TypeExpr)>,
}

struct Collector<'a> {
    files: &'a [Parsed<'a>],
    by_path: HashMap<&'a Path, usize>,
    seats: Vec<Option<Seat>>,
    index: Index,
    methods: Vec<Methods>,
}

/// Where the walk through the items of a file stands.
#[derive(Clone)]
struct Cursor<'a> {
    module: ModuleId,
    /// Where `mod x;` looks for its file.
    folder: PathBuf,
    /// The folder of the file itself, where `#[path]` looks.
    beside: &'a Path,
    inline: bool,
    test_only: bool,
}

/// Builds the index; the answer has a seat for each file.
pub(crate) fn collect(files: &[Parsed<'_>], manifests: &[Manifest]) -> (Index, Vec<Seat>) {
    let by_path = files.iter().enumerate().map(|(at, file)| (file.path, at)).collect();
    let mut collector = Collector {
        files,
        by_path,
        seats: vec![None; files.len()],
        index: Index::default(),
        methods: Vec::new(),
    };
    collector.index.renames = manifests.iter().map(|manifest| manifest.renames.clone()).collect();
    let packages: Vec<Option<usize>> =
        files.iter().map(|file| package_of(file.path, manifests)).collect();
    for (file, package) in packages.iter().enumerate() {
        if let Some(package) = *package {
            collector.load_if_root(file, package, &manifests[package]);
        }
    }
    collector.load_orphans(&packages);
    collector.index.resolve_globs();
    collector.attach_methods();
    let seats = collector.seats.iter().map(|seat| seat.unwrap_or(NOWHERE)).collect();
    (collector.index, seats)
}

/// Never used: every file is seated by [`Collector::load_orphans`].
const NOWHERE: Seat = Seat { module: 0, test_only: false };

fn package_of(path: &Path, manifests: &[Manifest]) -> Option<usize> {
    let around = manifests.iter().enumerate().filter(|(_, m)| path.starts_with(&m.folder));
    around.max_by_key(|(_, m)| m.folder.components().count()).map(|(at, _)| at)
}

impl<'a> Collector<'a> {
    fn load_if_root(&mut self, file: usize, package: usize, manifest: &Manifest) {
        let path = self.files[file].path;
        let Ok(inner) = path.strip_prefix(&manifest.folder) else {
            return;
        };
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        let is_library = match &manifest.library_path {
            Some(library) => path == library,
            None => parts == ["src", "lib.rs"],
        };
        let is_root = is_library
            || matches!(
                parts[..],
                ["build.rs"]
                    | ["src", "main.rs"]
                    | ["src", "bin", _]
                    | ["src", "bin", _, "main.rs"]
                    | ["examples", _]
                    | ["examples", _, "main.rs"]
            );
        if !is_root || self.seats[file].is_some_and(|seat| !seat.test_only) {
            return;
        }
        let root = self.load_root(file, Some(package));
        if let (true, Some(name)) = (is_library, &manifest.library) {
            self.index.libraries.insert(name.clone(), root);
        }
    }

    /// Files outside any crate: those that no other file declares are roots.
    fn load_orphans(&mut self, packages: &[Option<usize>]) {
        let orphans: Vec<usize> =
            (0..self.files.len()).filter(|file| self.seats[*file].is_none()).collect();
        let mut declared = HashSet::new();
        for file in &orphans {
            let path = self.files[*file].path;
            let folder = children_folder(path, false);
            for item in &self.files[*file].syntax.items {
                if let Item::Mod(module) = item {
                    declared.extend(self.file_of(module, &folder, path));
                    declared.extend(self.file_of(module, &children_folder(path, true), path));
                }
            }
        }
        for skip_declared in [true, false] {
            for file in &orphans {
                let skip = skip_declared && declared.contains(file);
                if self.seats[*file].is_none() && !skip {
                    self.load_root(*file, packages[*file]);
                }
            }
        }
    }

    fn load_root(&mut self, file: usize, package: Option<usize>) -> ModuleId {
        let root = self.index.modules.len();
        self.index.modules.push(Module { root, package, ..Module::default() });
        self.load(file, root, false, true);
        root
    }

    fn load(&mut self, file: usize, module: ModuleId, test_only: bool, is_root: bool) {
        let Parsed { path, syntax } = self.files[file];
        let test_only = test_only || is_test_only(&syntax.attrs);
        self.seats[file] = Some(Seat { module, test_only });
        let cursor = Cursor {
            module,
            folder: children_folder(path, is_root),
            beside: path,
            inline: false,
            test_only,
        };
        self.items(&syntax.items, &cursor);
    }

    fn items(&mut self, items: &[Item], cursor: &Cursor<'a>) {
        for item in items {
            match item {
                Item::Mod(module) => self.module(module, cursor),
                Item::Impl(block) if !is_test_only(&block.attrs) => {
                    self.implementation(block, cursor)
                }
                Item::Macro(call) if call.ident.is_none() && !is_test_only(&call.attrs) => {
                    // `cfg_rt! { pub use … }`: names may hide in there.
                    let items = fragments::items(call.mac.tokens.clone()).unwrap_or_default();
                    self.items(&items, cursor);
                }
                _ => {
                    add_item(&mut self.index.modules[cursor.module].names, item);
                    if let Some((name, facts)) = facts_of(item) {
                        let known = self.index.types.entry((cursor.module, name)).or_default();
                        known.extend(facts);
                    }
                }
            }
        }
    }

    fn module(&mut self, item: &syn::ItemMod, cursor: &Cursor<'a>) {
        let test_only = cursor.test_only || is_test_only(&item.attrs);
        let name = plain(&item.ident);
        if let Some((_, items)) = &item.content {
            let module = match self.index.child(cursor.module, &name) {
                Some(module) => module,
                None => self.new_child(cursor.module, &name),
            };
            let folder = cursor.folder.join(&name);
            let inner = Cursor { module, folder, inline: true, test_only, ..cursor.clone() };
            return self.items(items, &inner);
        }
        let (folder, beside) = (&cursor.folder, cursor.beside);
        let found = if cursor.inline {
            self.file_of(item, folder, &folder.join("mod.rs"))
        } else {
            self.file_of(item, folder, beside)
        };
        let Some(file) = found else { return };
        match self.seats[file] {
            Some(seat) if test_only || !seat.test_only => {
                self.index.modules[cursor.module].names.add(name, Name::Module(seat.module));
            }
            _ => {
                let module = self.new_child(cursor.module, &name);
                self.load(file, module, test_only, false);
            }
        }
    }

    fn new_child(&mut self, parent: ModuleId, name: &str) -> ModuleId {
        let id = self.index.modules.len();
        let Module { root, package, .. } = self.index.modules[parent];
        self.index.modules.push(Module {
            parent: Some(parent),
            root,
            package,
            ..Module::default()
        });
        self.index.modules[parent].names.add(name, Name::Module(id));
        id
    }

    /// The file of `mod x;`, if it is among those read.
    fn file_of(&self, item: &syn::ItemMod, folder: &Path, beside: &Path) -> Option<usize> {
        if item.content.is_some() {
            return None;
        }
        let find = |path: PathBuf| self.by_path.get(clean(&path).as_path()).copied();
        if let Some(written) = path_attribute(item) {
            return find(beside.parent()?.join(written));
        }
        let name = plain(&item.ident);
        let flat = find(folder.join(format!("{name}.rs")));
        flat.or_else(|| find(folder.join(name).join("mod.rs")))
    }

    fn implementation(&mut self, block: &syn::ItemImpl, cursor: &Cursor<'a>) {
        let methods = methods_of_impl(block);
        let of = TypeExpr::of(&block.self_ty);
        self.methods.push(Methods { module: cursor.module, of, methods });
    }

    fn attach_methods(&mut self) {
        for Methods { module, of, methods } in std::mem::take(&mut self.methods) {
            let TypeExpr::Path(path, _) = of else {
                continue;
            };
            for target in self.index.resolve(Place::module(module), &path) {
                if let Target::Item { module, name, rest } = target
                    && rest.is_empty()
                {
                    let facts = self.index.types.entry((module, name)).or_default();
                    facts.methods.extend(methods.iter().cloned());
                }
            }
        }
    }
}

fn children_folder(path: &Path, is_root: bool) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) }
}

fn path_attribute(item: &syn::ItemMod) -> Option<String> {
    item.attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Without `.` and `..`, as `#[path]` may have them.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

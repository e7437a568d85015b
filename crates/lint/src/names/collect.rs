//! Reads all files into one [`Index`], and finds which file is which module.
//!
//! 1. Crate roots come first, and each file gets the place its first non-test `mod` gives it.
//! 2. A file that only test modules lead to is test code.
//! 3. A file that nothing leads to is a root of its own: it is checked all the same.
//! 4. A file that something leads to and that was not read is wanted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use syn::Item;
use syn::visit::Visit as _;

use super::files::{children_folder, module_files};
use super::hidden::{Search, Suspicion};
use super::items::{add_item, facts_of, methods_of_impl};
use super::resolve::{Place, Target};
use super::types::{TypeExpr, plain};
use super::{Index, Module, ModuleId, Name};
use crate::fragments;
use crate::manifest::Manifest;
use crate::sources::{Sources, Unit, Wanted};
use crate::testcode::is_cfg_test;

/// Where a file belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) file: usize,
    pub(crate) module: ModuleId,
    pub(crate) test_only: bool,
}

/// All that the files say about names.
pub(crate) struct Collected {
    pub(crate) index: Index,
    /// One for each file.
    pub(crate) seats: Vec<Seat>,
    pub(crate) wanted: Vec<Wanted>,
    /// The files that others include.
    pub(crate) included: HashSet<usize>,
}

/// An `impl` whose type may live in another module: attached when all names are known.
struct Methods {
    module: ModuleId,
    of: TypeExpr,
    methods: Vec<(String, TypeExpr)>,
}

pub(super) struct Collector<'a> {
    pub(super) sources: &'a Sources,
    pub(super) manifests: &'a [Manifest],
    pub(super) suspicions: Vec<Suspicion>,
    pub(super) seats: Vec<Option<Seat>>,
    pub(super) index: Index,
    methods: Vec<Methods>,
    pub(super) wanted: Vec<Wanted>,
    /// Which file is included in which module.
    pub(super) included: HashSet<(usize, ModuleId)>,
}

/// Where the walk through the items of a file stands.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    pub(super) file: usize,
    pub(super) module: ModuleId,
    /// Where `mod x;` looks for its file.
    pub(super) folder: PathBuf,
    /// The file itself: `#[path]` starts from its folder.
    pub(super) beside: &'a Path,
    pub(super) inline: bool,
    pub(super) test_only: bool,
    /// Inside a macro's input a `mod x;` may be anything.
    pub(super) in_macro: bool,
    /// Where `mod x;` may look as well: nothing leads to the file, so that it is a root or not.
    pub(super) other_folder: Option<PathBuf>,
}

impl Cursor<'_> {
    pub(super) fn in_macro(&self) -> Self {
        Self { in_macro: true, ..self.clone() }
    }
}

/// Builds the index.
pub(crate) fn collect(sources: &Sources, manifests: &[Manifest]) -> Collected {
    let units = &sources.units;
    let suspicion = |unit: &Unit| Suspicion::of(&unit.text, &unit.syntax.items);
    let mut collector = Collector {
        sources,
        manifests,
        suspicions: units.iter().map(suspicion).collect(),
        seats: vec![None; units.len()],
        index: Index::default(),
        methods: Vec::new(),
        wanted: Vec::new(),
        included: HashSet::new(),
    };
    collector.index.renames = manifests.iter().map(|manifest| manifest.renames.clone()).collect();
    let packages: Vec<Option<usize>> =
        units.iter().map(|unit| package_of(&unit.path, manifests)).collect();
    for (file, package) in packages.iter().enumerate() {
        if let Some(package) = *package {
            collector.load_if_root(file, package, &manifests[package]);
        }
    }
    collector.load_orphans(&packages);
    collector.index.resolve_globs();
    collector.attach_methods();
    let seats = collector.seats.iter().map(|seat| seat.unwrap_or(NOWHERE)).collect();
    let included = collector.included.iter().map(|(file, _)| *file).collect();
    Collected { index: collector.index, seats, wanted: collector.wanted, included }
}

/// How a file came into the tree of modules.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    /// The root of a crate, or a module that a `#[path]` names: its modules are beside it.
    Root,
    Module,
    Orphan,
}

/// Never used: every file is seated by [`Collector::load_orphans`].
const NOWHERE: Seat = Seat { file: 0, module: 0, test_only: false };

fn package_of(path: &Path, manifests: &[Manifest]) -> Option<usize> {
    let around = manifests.iter().enumerate().filter(|(_, m)| path.starts_with(&m.folder));
    around.max_by_key(|(_, m)| m.folder.components().count()).map(|(at, _)| at)
}

impl<'a> Collector<'a> {
    fn load_if_root(&mut self, file: usize, package: usize, manifest: &Manifest) {
        let path = self.sources.units[file].path.as_path();
        let Ok(inner) = path.strip_prefix(&manifest.folder) else {
            return;
        };
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        let is_library = match &manifest.library_path {
            Some(library) => path == library,
            None => parts == ["src", "lib.rs"],
        };
        let is_root = is_library
            || manifest.targets.iter().any(|target| target == path)
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
        let root = self.new_root(Some(package));
        self.load(file, root, false, Role::Root);
        if let (true, Some(name)) = (is_library, &manifest.library) {
            self.index.libraries.insert(name.clone(), root);
        }
    }

    /// Files outside any crate: those that no other file declares are roots.
    fn load_orphans(&mut self, packages: &[Option<usize>]) {
        let orphans: Vec<usize> =
            (0..self.seats.len()).filter(|file| self.seats[*file].is_none()).collect();
        let mut declared = HashSet::new();
        for file in &orphans {
            let unit = &self.sources.units[*file];
            for item in &unit.syntax.items {
                let Item::Mod(module) = item else { continue };
                if module.content.is_none() {
                    for is_root in [false, true] {
                        let folder = children_folder(&unit.path, is_root);
                        let files = module_files(module, &folder, &unit.path);
                        declared.extend(self.found(&files.named));
                        declared.extend(self.found(&files.usual));
                    }
                }
            }
        }
        for skip_declared in [true, false] {
            for file in &orphans {
                let skip = skip_declared && declared.contains(file);
                if self.seats[*file].is_none() && !skip {
                    let root = self.new_root(packages[*file]);
                    self.load(*file, root, false, Role::Orphan);
                }
            }
        }
    }

    fn new_root(&mut self, package: Option<usize>) -> ModuleId {
        let root = self.index.modules.len();
        self.index.modules.push(Module { root, package, ..Module::default() });
        root
    }

    pub(super) fn load(&mut self, file: usize, module: ModuleId, test_only: bool, role: Role) {
        let Unit { path, syntax, .. } = &self.sources.units[file];
        let test_only = test_only || is_cfg_test(&syntax.attrs);
        self.seats[file] = Some(Seat { file, module, test_only });
        let cursor = Cursor {
            file,
            module,
            folder: children_folder(path, role != Role::Module),
            beside: path,
            inline: false,
            test_only,
            in_macro: false,
            other_folder: (role == Role::Orphan).then(|| children_folder(path, false)),
        };
        self.items(&syntax.items, &cursor);
    }

    fn items(&mut self, items: &[Item], cursor: &Cursor<'a>) {
        for item in items {
            match item {
                Item::Mod(module) => {
                    let test_only = cursor.test_only || is_cfg_test(&module.attrs);
                    self.module(module, &Cursor { test_only, ..cursor.clone() });
                    continue;
                }
                Item::Macro(call) if call.ident.is_none() && !is_cfg_test(&call.attrs) => {
                    self.macro_items(&call.mac, cursor);
                    continue;
                }
                Item::Impl(block) if !is_cfg_test(&block.attrs) => {
                    self.implementation(block, cursor);
                }
                _ => {
                    add_item(&mut self.index.modules[cursor.module].names, item);
                    if let Some((name, facts)) = facts_of(item) {
                        let known = self.index.types.entry((cursor.module, name)).or_default();
                        known.extend(facts);
                    }
                }
            }
            if self.suspicions[cursor.file].hides && !cursor.test_only {
                Search { collector: self, cursor }.visit_item(item);
            }
        }
    }

    /// `include!("x.rs")`, or `cfg_rt! { pub use … }`: names may hide in there.
    fn macro_items(&mut self, call: &syn::Macro, cursor: &Cursor<'a>) {
        if self.is_include(&call.path, cursor) {
            return self.include(call, cursor);
        }
        match fragments::items(call.tokens.clone()) {
            Some(items) => self.items(&items, &cursor.in_macro()),
            None if self.suspicions[cursor.file].hides && !cursor.test_only => {
                Search { collector: self, cursor }.visit_macro(call);
            }
            None => {}
        }
    }

    /// `cursor` already knows whether the module is test code.
    fn module(&mut self, item: &syn::ItemMod, cursor: &Cursor<'a>) {
        let name = plain(&item.ident);
        if let Some((_, items)) = &item.content {
            let module = match self.index.child(cursor.module, &name) {
                Some(module) => module,
                None => self.new_child(cursor.module, Some(&name)),
            };
            return self.inline_module(items, module, &name, cursor);
        }
        for (file, role) in self.files_of(item, cursor) {
            match self.seats[file] {
                Some(seat) if cursor.test_only || !seat.test_only => {
                    self.index.modules[cursor.module].names.add(&name, Name::Module(seat.module));
                }
                _ => {
                    let module = self.new_child(cursor.module, Some(&name));
                    self.load(file, module, cursor.test_only, role);
                }
            }
        }
    }

    fn inline_module(&mut self, items: &[Item], module: ModuleId, name: &str, cursor: &Cursor<'a>) {
        let folder = cursor.folder.join(name);
        let other_folder = cursor.other_folder.as_ref().map(|other| other.join(name));
        self.items(items, &Cursor { module, folder, other_folder, inline: true, ..cursor.clone() });
    }

    /// A module inside a function: only that function's block can name it.
    pub(super) fn block_module(&mut self, item: &syn::ItemMod, cursor: &Cursor<'a>) {
        if is_cfg_test(&item.attrs) {
            return;
        }
        let start = item.ident.span().start();
        let module = self.new_child(cursor.module, None);
        self.index.block_modules.insert((cursor.file, start.line, start.column), module);
        match &item.content {
            Some((_, items)) => self.inline_module(items, module, &plain(&item.ident), cursor),
            None => {
                for (file, role) in self.files_of(item, cursor) {
                    if self.seats[file].is_none_or(|seat| seat.test_only) {
                        self.load(file, module, false, role);
                    }
                }
            }
        }
    }

    /// A module below another, which can name it unless it has no name there.
    fn new_child(&mut self, parent: ModuleId, name: Option<&str>) -> ModuleId {
        let id = self.index.modules.len();
        let Module { root, package, .. } = self.index.modules[parent];
        let parent_of = Some(parent);
        self.index.modules.push(Module { parent: parent_of, root, package, ..Module::default() });
        if let Some(name) = name {
            self.index.modules[parent].names.add(name, Name::Module(id));
        }
        id
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

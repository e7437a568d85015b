//! Who is meant by a name: modules, imports, re-exports and aliases of all files together.
//!
//! The lint has no compiler, so this is name resolution in small: enough to follow a spawn through
//! `use … as`, globs, module aliases, type aliases, renamed dependencies and re-exports, within a
//! crate and between the crates of a workspace. A name with several definitions (`cfg`) has
//! several targets, and a rule fires if any of them is forbidden.

pub(crate) mod collect;
mod files;
mod hidden;
pub(crate) mod items;
mod reach;
pub(crate) mod resolve;
pub(crate) mod types;

use std::collections::HashMap;

use self::resolve::Target;
use self::types::TypeExpr;

/// Index of a module in [`Index::modules`].
pub(crate) type ModuleId = usize;

/// A path as written: `::a::b`, `a::b`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PathRef {
    pub(crate) leading: bool,
    pub(crate) segments: Vec<String>,
}

/// What a name stands for where it is defined.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// An import or re-export.
    Use(PathRef),
    Module(ModuleId),
    /// `type A = B;`
    Alias(TypeExpr),
    /// A struct, enum, union or trait.
    Type,
    /// A function with what it returns, or a constant or static with its type.
    Value(TypeExpr),
    /// A generic parameter, with its first telling bound.
    Generic(TypeExpr),
}

/// The names of a module or of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) entries: HashMap<String, Vec<Name>>,
    pub(crate) globs: Vec<PathRef>,
}

impl Names {
    pub(crate) fn add(&mut self, name: impl Into<String>, meaning: Name) {
        self.entries.entry(name.into()).or_default().push(meaning);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.globs.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) names: Names,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) root: ModuleId,
    pub(crate) package: Option<usize>,
}

/// A type of the checked code: its fields, and what its methods return.
#[derive(Debug, Default)]
pub(crate) struct TypeFacts {
    pub(crate) fields: HashMap<String, TypeExpr>,
    pub(crate) methods: HashMap<String, TypeExpr>,
}

impl TypeFacts {
    pub(crate) fn extend(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.methods.extend(other.methods);
    }
}

/// Everything known about names.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) modules: Vec<Module>,
    /// For each module, what its glob imports open.
    pub(crate) globs: Vec<Vec<Target>>,
    pub(crate) types: HashMap<(ModuleId, String), TypeFacts>,
    /// Crates of the workspace, as code spells them.
    pub(crate) libraries: HashMap<String, ModuleId>,
    /// Modules inside function bodies, by their file, line and column.
    pub(crate) block_modules: HashMap<(usize, usize, usize), ModuleId>,
    /// For each package, its renamed dependencies.
    pub(crate) renames: Vec<HashMap<String, String>>,
}

impl Index {
    pub(crate) fn child(&self, module: ModuleId, name: &str) -> Option<ModuleId> {
        self.modules[module].names.entries.get(name)?.iter().find_map(|meaning| match meaning {
            Name::Module(id) => Some(*id),
            _ => None,
        })
    }
}

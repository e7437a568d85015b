//! From a path as written at a place to what it means.

use super::types::TypeExpr;
use super::{Index, Module, ModuleId, Name, Names, PathRef};
use crate::known;

/// Imports of imports of imports …: nobody writes more.
const MAX_HOPS: usize = 24;

/// What a path means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// A path into a crate that is not part of the run.
    Extern(Vec<String>),
    Module(ModuleId),
    /// An item of the checked code, and the path's segments behind it.
    Item {
        module: ModuleId,
        name: String,
        rest: Vec<String>,
    },
    /// A generic parameter with its bound.
    Generic(TypeExpr),
}

/// Where a path is written: a module, and the blocks with items of their own around it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) module: ModuleId,
    pub(crate) blocks: &'a [Names],
}

impl Place<'static> {
    pub(crate) fn module(module: ModuleId) -> Self {
        Self { module, blocks: &[] }
    }
}

impl Index {
    /// All the meanings of a path; none when it is not known.
    pub(crate) fn resolve(&self, place: Place<'_>, path: &PathRef) -> Vec<Target> {
        let mut query = Query::new(self);
        query.path(place, path.leading, &path.segments, false);
        query.found
    }

    /// Follows every module's globs once. A glob may lead through another one: the second round
    /// sees what the first found.
    pub(crate) fn resolve_globs(&mut self) {
        for _ in 0..2 {
            let of_module = |(id, module): (ModuleId, &Module)| {
                let place = Place::module(id);
                let globs = module.names.globs.iter();
                globs.flat_map(|glob| self.glob_targets(place, glob)).collect()
            };
            self.globs = self.modules.iter().enumerate().map(of_module).collect();
        }
    }

    /// What a glob import opens, unless no rule can care.
    fn glob_targets(&self, place: Place<'_>, glob: &PathRef) -> Vec<Target> {
        let mut query = Query::new(self);
        query.through_block_globs = false;
        query.path(place, glob.leading, &glob.segments, true);
        query.found.retain(|target| match target {
            Target::Module(_) => true,
            Target::Extern(path) => known::is_crate(&path[0]),
            Target::Item { .. } | Target::Generic(_) => false,
        });
        query.found
    }
}

struct Query<'i> {
    index: &'i Index,
    found: Vec<Target>,
    /// Modules whose globs were followed already: globs may form cycles.
    globs_seen: Vec<ModuleId>,
    /// Off while a block's own globs are resolved: they would lead to themselves.
    through_block_globs: bool,
    hops: usize,
}

impl<'i> Query<'i> {
    fn new(index: &'i Index) -> Self {
        let (found, globs_seen) = (Vec::new(), Vec::new());
        Self { index, found, globs_seen, through_block_globs: true, hops: 0 }
    }
}

impl Query<'_> {
    fn path(&mut self, place: Place<'_>, leading: bool, segments: &[String], imported: bool) {
        let Some(first) = segments.first() else {
            return;
        };
        if self.hops > MAX_HOPS {
            return;
        }
        if leading {
            return self.external(place.module, segments);
        }
        let module = &self.index.modules[place.module];
        match first.as_str() {
            "crate" => return self.inside(module.root, &segments[1..]),
            "self" | "super" => return self.inside(place.module, segments),
            _ => {}
        }
        for depth in (0..place.blocks.len()).rev() {
            let here = Place { module: place.module, blocks: &place.blocks[..=depth] };
            if self.scope(&place.blocks[depth], here, segments) {
                return;
            }
        }
        let here = Place::module(place.module);
        if self.scope(&module.names, here, segments) {
            return;
        }
        // A type that nothing here defines is not a crate.
        if imported || (segments.len() > 1 && !first.starts_with(char::is_uppercase)) {
            self.external(place.module, segments);
        }
    }

    /// Looks the first segment up in one scope; says whether the search ends here.
    fn scope(&mut self, names: &Names, place: Place<'_>, segments: &[String]) -> bool {
        let before = self.found.len();
        if let Some(meanings) = names.entries.get(&segments[0]) {
            for meaning in meanings {
                self.follow(meaning, meanings, place, segments);
            }
            return true;
        }
        if !place.blocks.is_empty() {
            if self.through_block_globs {
                for glob in &names.globs {
                    self.opened(&self.index.glob_targets(place, glob), segments);
                }
            }
        } else if !self.globs_seen.contains(&place.module) {
            self.globs_seen.push(place.module);
            let index = self.index;
            self.opened(index.globs.get(place.module).map_or(&[], Vec::as_slice), segments);
        }
        self.found.len() > before
    }

    /// Looks a path up in what globs opened.
    fn opened(&mut self, targets: &[Target], segments: &[String]) {
        for target in targets {
            match target {
                Target::Module(module) => self.inside(*module, segments),
                Target::Extern(prefix) => {
                    let path = [prefix, segments].concat();
                    // A foreign glob may or may not hold the name: believe it for known ones only.
                    if !known::is_crate(&segments[0]) && known::is_known(&path) {
                        self.found.push(Target::Extern(path));
                    }
                }
                Target::Item { .. } | Target::Generic(_) => {}
            }
        }
    }

    fn follow(&mut self, meaning: &Name, siblings: &[Name], place: Place<'_>, segments: &[String]) {
        let (first, rest) = (&segments[0], &segments[1..]);
        self.hops += 1;
        match meaning {
            Name::Use(path) => {
                let mut whole = path.segments.clone();
                whole.extend_from_slice(rest);
                if !path.leading && path.segments.first() == Some(first) {
                    self.own_name(siblings, place, &whole);
                } else {
                    self.path(place, path.leading, &whole, true);
                }
            }
            Name::Module(module) => self.inside(*module, rest),
            Name::Alias(TypeExpr::Path(path, _)) if !rest.is_empty() => {
                let mut whole = path.segments.clone();
                whole.extend_from_slice(rest);
                self.path(place, path.leading, &whole, true);
            }
            Name::Generic(bound) => self.found.push(Target::Generic(bound.clone())),
            Name::Alias(_) | Name::Type | Name::Value(_) => self.found.push(Target::Item {
                module: place.module,
                name: first.clone(),
                rest: rest.to_vec(),
            }),
        }
        self.hops -= 1;
    }

    /// `use spawn::spawn` beside `mod spawn;`: the path starts with a name it defines itself, so
    /// it means the module of that name, or else a crate.
    fn own_name(&mut self, siblings: &[Name], place: Place<'_>, whole: &[String]) {
        let module = siblings.iter().find_map(|sibling| match sibling {
            Name::Module(module) => Some(*module),
            _ => None,
        });
        match module {
            Some(module) => self.inside(module, &whole[1..]),
            None => self.external(place.module, whole),
        }
    }

    fn inside(&mut self, mut module: ModuleId, mut segments: &[String]) {
        loop {
            match segments.first().map(String::as_str) {
                None => return self.found.push(Target::Module(module)),
                Some("self") => {}
                Some("super") => module = self.index.modules[module].parent.unwrap_or(module),
                Some(_) => break,
            }
            segments = &segments[1..];
        }
        if self.hops > MAX_HOPS {
            return;
        }
        self.hops += 1;
        self.scope(&self.index.modules[module].names, Place::module(module), segments);
        self.hops -= 1;
    }

    fn external(&mut self, module: ModuleId, segments: &[String]) {
        let index = self.index;
        let package = index.modules[module].package;
        let renames = package.and_then(|package| index.renames.get(package));
        let real = renames.and_then(|renames| renames.get(&segments[0])).unwrap_or(&segments[0]);
        let mut path = segments.to_vec();
        path[0].clone_from(real);
        let library = index.libraries.get(real);
        // A vendored runtime is still the runtime. The kernel is known by name and by its source.
        if known::is_crate(real) || library.is_none() {
            self.found.push(Target::Extern(path));
        }
        if let Some(library) = library
            && (known::is_kernel(real) || !known::is_crate(real))
        {
            self.inside(*library, &segments[1..]);
        }
    }
}

//! What handles jobs: work that holds a permit of a pool while it runs.
//!
//! | written | is |
//! |---|---|
//! | a closure given to `.handler(…)`, `.handle(…)`, `.consumer(…)`, `.on_message(…)` | a handler |
//! | a function marked `#[handler]`, `#[job]`, `#[consumer]` | a handler |
//! | `handle` of `impl Handler`, `execute` of `impl Executor`, `run` and `perform` of `impl Job`, `consume` of `impl Consumer`, `work` of `impl Worker` | a handler |
//!
//! The frameworks below use the same words for requests and actors, which hold no permit.

use super::Checker;
use crate::infer::Ty;
use crate::known;
use crate::names::resolve::{Place, Target};
use crate::names::types::plain;
use crate::names::{ModuleId, Names, PathRef};

const HANDLER_TRAITS: &[(&str, &[&str])] = &[
    ("Handler", &["handle"]),
    ("JobHandler", &["handle"]),
    ("MessageHandler", &["handle"]),
    ("Executor", &["execute"]),
    ("Job", &["run", "perform"]),
    ("Consumer", &["consume"]),
    ("Worker", &["work"]),
];

/// Globs of globs.
const MAX_GLOBS: usize = 3;

impl Checker<'_> {
    /// The methods of this `impl` that handle jobs.
    pub(super) fn handler_trait(&self, item: &syn::ItemImpl) -> Option<&'static [&'static str]> {
        let (path, _) = item.trait_.as_ref()?;
        let path = PathRef::of(path);
        if self.is_of_framework(&path) {
            return None;
        }
        let name = path.segments.last()?;
        HANDLER_TRAITS.iter().find(|(known, _)| known == name).map(|(_, methods)| *methods)
    }

    pub(super) fn is_handler_function(&self, attributes: &[syn::Attribute]) -> bool {
        attributes.iter().any(|attribute| {
            let last = attribute.path().segments.last();
            last.is_some_and(|last| {
                ["handler", "job", "consumer"].iter().any(|name| last.ident == name)
            }) && !self.is_of_framework(&PathRef::of(attribute.path()))
        })
    }

    /// A method that registers a handler.
    pub(super) fn registers_handler(&self, call: &syn::ExprMethodCall) -> bool {
        is_handler_method(call) && self.infer(&call.receiver) != Ty::Framework
    }

    /// Whether a name comes from a framework, as far as its imports tell.
    fn is_of_framework(&self, path: &PathRef) -> bool {
        let targets = self.targets(path);
        if targets.is_empty() {
            let blocks = self.blocks.iter().any(|names| self.opens_framework(names, MAX_GLOBS));
            return blocks || self.module_opens_framework(self.module, MAX_GLOBS);
        }
        targets.iter().any(|target| match target {
            Target::Extern(real) => known::is_framework(&real[0]),
            _ => false,
        })
    }

    fn module_opens_framework(&self, module: ModuleId, depth: usize) -> bool {
        self.opens_framework(&self.index.modules[module].names, depth)
    }

    /// Whether a glob import may bring a framework's names in.
    fn opens_framework(&self, names: &Names, depth: usize) -> bool {
        names.globs.iter().any(|glob| {
            let first = glob.segments.first().map(String::as_str).unwrap_or_default();
            if known::is_framework(first) {
                return true;
            }
            let place = Place { module: self.module, blocks: &self.blocks };
            depth > 0
                && self.index.resolve(place, glob).iter().any(|target| match target {
                    Target::Module(module) if *module != self.module => {
                        self.module_opens_framework(*module, depth - 1)
                    }
                    _ => false,
                })
        })
    }
}

/// Whatever it is called on.
pub(super) fn is_handler_method(call: &syn::ExprMethodCall) -> bool {
    ["handler", "handle", "consumer", "on_message"].contains(&plain(&call.method).as_str())
}

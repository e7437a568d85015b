//! What kind of thing an expression is, as far as one can tell without a compiler.
//!
//! Wrappers are seen through: an `Arc<Mutex<JoinSet<()>>>` is a spawner, and so is what
//! `.lock().await` gives. What is not known is [`Ty::Unknown`]; the rules then decide by shape.

mod values;

use syn::Member;

use crate::check::Checker;
use crate::known;
use crate::names::items::DEREF;
use crate::names::resolve::{Place, Target};
use crate::names::types::{TypeExpr, plain};
use crate::names::{ModuleId, Name, PathRef, TypeFacts};

/// Aliases of aliases; more is a cycle.
const MAX_ALIASES: usize = 8;

/// The kinds of things the rules tell apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ty {
    Unknown,
    /// A type that is neither of the checked code nor in a table.
    Foreign,
    Unit,
    Tuple(Vec<Ty>),
    /// Starts tasks or threads: `Handle`, `JoinSet`, `thread::Builder`, …
    Spawner,
    /// Builds a spawner: `runtime::Builder`, `ThreadPoolBuilder`.
    SpawnerBuilder,
    /// Starts processes, which is fine.
    Command,
    Semaphore,
    Permit,
    /// The kernel's queue; `next` gives a turn.
    Sluice,
    /// What `admit` gives; `turn` waits for the turn.
    Admitted,
    Turn,
    TaskGroup,
    /// A child group, and how many task closures were around where it was made.
    Child(usize),
    Context,
    /// A context that was made out of nothing, and what is derived from it.
    Fresh,
    /// A type of a framework whose handlers are no jobs.
    Framework,
    /// A queue that has no bounded form: `SegQueue`.
    Queue,
    /// A future or closure: something to run.
    Work,
    /// A type of the checked code.
    Local(ModuleId, String),
}

impl Checker<'_> {
    pub(crate) fn place(&self) -> Place<'_> {
        Place { module: self.module, blocks: &self.blocks }
    }

    /// What a path of the source means here; `Self` is replaced by the type around.
    pub(crate) fn targets(&self, path: &PathRef) -> Vec<Target> {
        if path.segments.first().is_some_and(|first| first == "Self") {
            let Ty::Local(module, name) = &self.self_type else {
                return Vec::new();
            };
            let rest = path.segments[1..].to_vec();
            return vec![Target::Item { module: *module, name: name.clone(), rest }];
        }
        self.index.resolve(self.place(), path)
    }

    pub(crate) fn type_of(&self, ty: &TypeExpr) -> Ty {
        self.type_at(self.place(), ty, 0)
    }

    pub(crate) fn type_in(&self, module: ModuleId, ty: &TypeExpr) -> Ty {
        self.type_at(Place::module(module), ty, 0)
    }

    fn type_at(&self, place: Place<'_>, ty: &TypeExpr, aliases: usize) -> Ty {
        let (path, arguments) = match ty {
            TypeExpr::Path(path, arguments) => (path, arguments),
            TypeExpr::Tuple(parts) => {
                let of_part = |part| self.type_at(place, part, aliases);
                return Ty::Tuple(parts.iter().map(of_part).collect());
            }
            TypeExpr::Unit => return Ty::Unit,
            TypeExpr::Other => return Ty::Unknown,
        };
        let Some(last) = path.segments.last() else {
            return Ty::Unknown;
        };
        if aliases > MAX_ALIASES {
            return Ty::Unknown;
        }
        if path.segments.len() == 1 && last == "Self" {
            return self.self_type.clone();
        }
        let targets = self.index.resolve(place, path);
        let is_ours = |target: &Target| matches!(target, Target::Item { .. });
        let inner = if known::is_map(last) { arguments.last() } else { arguments.first() };
        if (known::is_wrapper(last) || known::is_map(last))
            && let Some(inner) = inner
            && !targets.iter().any(is_ours)
        {
            return self.type_at(place, inner, aliases + 1);
        }
        if targets.is_empty() {
            return known::type_by_name(last).unwrap_or(Ty::Foreign);
        }
        let kinds = targets.iter().map(|target| self.type_of_target(target, place, aliases));
        // With several definitions the most telling counts.
        let rank = |ty: &Ty| match ty {
            Ty::Unknown | Ty::Foreign => 0,
            Ty::Local(..) => 1,
            _ => 2,
        };
        kinds.max_by_key(rank).unwrap_or(Ty::Unknown)
    }

    fn type_of_target(&self, target: &Target, place: Place<'_>, aliases: usize) -> Ty {
        match target {
            Target::Extern(path) => known::type_of(path),
            Target::Module(_) => Ty::Unknown,
            Target::Generic(bound) => match self.type_at(place, bound, aliases + 1) {
                // A foreign trait tells nothing about the type that has it.
                Ty::Foreign => Ty::Unknown,
                ty => ty,
            },
            Target::Item { module, name, rest } if rest.is_empty() => {
                if let Some(alias) = self.alias(*module, name) {
                    return self.type_at(Place::module(*module), alias, aliases + 1);
                }
                if name == "TaskGroup" {
                    return Ty::TaskGroup;
                }
                if let Some(ty) = known::kernel_type(name).filter(|_| self.is_kernel(*module)) {
                    return ty;
                }
                Ty::Local(*module, name.clone())
            }
            Target::Item { .. } => Ty::Unknown,
        }
    }

    /// Whether a module is part of the kernel itself.
    pub(crate) fn is_kernel(&self, module: ModuleId) -> bool {
        let root = self.index.modules[module].root;
        let mut libraries = self.index.libraries.iter();
        libraries.any(|(name, library)| *library == root && known::is_kernel_crate(name))
    }

    fn alias(&self, module: ModuleId, name: &str) -> Option<&TypeExpr> {
        let meanings = self.index.modules[module].names.entries.get(name)?;
        meanings.iter().find_map(|meaning| match meaning {
            Name::Alias(ty) => Some(ty),
            _ => None,
        })
    }

    /// What is known of a type, from a block and from its module.
    fn facts(&self, module: ModuleId, name: &str) -> impl Iterator<Item = &TypeFacts> {
        let by_module = self.index.types.get(&(module, name.to_owned()));
        self.block_types.get(name).into_iter().chain(by_module)
    }

    /// What a method is called on: the value, or what it derefs to if it has no such method itself.
    pub(crate) fn receiver(&self, expression: &syn::Expr, method: &str) -> Ty {
        let ty = self.infer(expression);
        if self.own_method(&ty, method).is_some() {
            return ty;
        }
        self.own_method(&ty, DEREF).unwrap_or(ty)
    }

    /// What a method of a local type returns, if the type has that method.
    pub(crate) fn own_method(&self, ty: &Ty, method: &str) -> Option<Ty> {
        let Ty::Local(module, name) = ty else {
            return None;
        };
        let returned = self.facts(*module, name).find_map(|facts| facts.methods.get(method))?;
        if matches!(returned, TypeExpr::Path(path, _) if path.segments == ["Self"]) {
            return Some(ty.clone());
        }
        Some(self.type_in(*module, returned))
    }
}

pub(crate) fn member_name(member: &Member) -> String {
    match member {
        Member::Named(name) => plain(name),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// An acquire that only semaphores have; pools of connections have the others.
pub(crate) fn is_unmistakable_acquire(method: &str) -> bool {
    is_acquire(method) && !matches!(method, "acquire" | "try_acquire" | "acquire_blocking")
}

pub(crate) fn is_acquire(method: &str) -> bool {
    matches!(
        method,
        "acquire"
            | "acquire_owned"
            | "acquire_many"
            | "acquire_many_owned"
            | "acquire_arc"
            | "acquire_blocking"
            | "try_acquire"
            | "try_acquire_owned"
            | "try_acquire_many"
            | "try_acquire_many_owned"
            | "try_acquire_arc"
    )
}

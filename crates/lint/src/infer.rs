//! What kind of thing an expression is, as far as one can tell without a compiler.
//!
//! Wrappers are seen through: an `Arc<Mutex<JoinSet<()>>>` is a spawner, and so is what
//! `.lock().await` gives. What is not known is [`Ty::Unknown`]; the rules then decide by shape.

use syn::{Expr, Member};

use crate::check::Checker;
use crate::check::context::makes;
use crate::check::yields::is_called_semaphore;
use crate::known;
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

    pub(crate) fn infer(&self, expression: &Expr) -> Ty {
        match expression {
            Expr::Paren(inner) => self.infer(&inner.expr),
            Expr::Group(inner) => self.infer(&inner.expr),
            Expr::Reference(inner) => self.infer(&inner.expr),
            Expr::Unary(inner) => self.infer(&inner.expr),
            Expr::Await(inner) => self.infer(&inner.base),
            Expr::Try(inner) => self.infer(&inner.expr),
            Expr::Index(inner) => self.infer(&inner.expr),
            Expr::Cast(cast) => self.type_of(&TypeExpr::of(&cast.ty)),
            Expr::Async(_) | Expr::Closure(_) => Ty::Work,
            Expr::Path(path) => self.infer_path(path),
            Expr::Field(field) => self.infer_field(field),
            Expr::Call(call) => self.infer_call(call),
            Expr::MethodCall(call) => self.infer_method(call),
            Expr::Struct(literal) => self.type_of(&TypeExpr::of_path(&literal.path)),
            Expr::Tuple(tuple) => Ty::Tuple(tuple.elems.iter().map(|e| self.infer(e)).collect()),
            Expr::If(branches) => self.infer_block(&branches.then_branch),
            Expr::Block(block) => self.infer_block(&block.block),
            Expr::Unsafe(block) => self.infer_block(&block.block),
            Expr::Match(choice) => {
                let arms = choice.arms.iter().map(|arm| self.infer(&arm.body));
                arms.into_iter().find(|ty| *ty != Ty::Unknown).unwrap_or(Ty::Unknown)
            }
            _ => Ty::Unknown,
        }
    }

    fn infer_block(&self, block: &syn::Block) -> Ty {
        match block.stmts.last() {
            Some(syn::Stmt::Expr(value, None)) => self.infer(value),
            _ => Ty::Unknown,
        }
    }

    fn infer_path(&self, path: &syn::ExprPath) -> Ty {
        if let Some(name) = path.path.get_ident()
            && let Some(ty) = self.variable(&plain(name))
        {
            return ty.clone();
        }
        let value = |target| match target {
            Target::Item { module, name, rest } if rest.is_empty() => {
                if self.block_types.contains_key(&name) {
                    return Some(Ty::Local(module, name));
                }
                let meanings = self.index.modules[module].names.entries.get(&name)?;
                meanings.iter().find_map(|meaning| match meaning {
                    Name::Value(ty) => Some(self.type_in(module, ty)),
                    // A unit struct is its own value.
                    Name::Type => Some(Ty::Local(module, name.clone())),
                    _ => None,
                })
            }
            Target::Extern(path) => Some(known::type_of(&path)).filter(|ty| *ty == Ty::Spawner),
            _ => None,
        };
        let targets = self.targets(&PathRef::of(&path.path));
        targets.into_iter().find_map(value).unwrap_or(Ty::Unknown)
    }

    fn infer_field(&self, field: &syn::ExprField) -> Ty {
        match (self.infer(&field.base), &field.member) {
            (Ty::Local(module, name), member) => {
                self.field_type(module, &name, &member_name(member))
            }
            (Ty::Tuple(parts), Member::Unnamed(index)) => {
                parts.into_iter().nth(index.index as usize).unwrap_or(Ty::Unknown)
            }
            _ => Ty::Unknown,
        }
    }

    pub(crate) fn field_type(&self, module: ModuleId, name: &str, member: &str) -> Ty {
        let written = self.facts(module, name).find_map(|facts| facts.fields.get(member));
        written.map_or(Ty::Unknown, |ty| self.type_in(module, ty))
    }

    /// The types of all the fields of a type of the checked code.
    pub(crate) fn field_types(&self, module: ModuleId, name: &str) -> Vec<Ty> {
        let fields = self.facts(module, name).flat_map(|facts| facts.fields.values());
        fields.map(|ty| self.type_in(module, ty)).collect()
    }

    /// What a call of a function of the checked code returns.
    pub(crate) fn infer_own_call(&self, function: &syn::ExprPath) -> Ty {
        let mut targets = self.targets(&PathRef::of(&function.path)).into_iter();
        let returned = targets.find_map(|target| match target {
            Target::Item { module, name, rest } => Some(self.infer_item_call(module, &name, &rest)),
            _ => None,
        });
        returned.unwrap_or(Ty::Unknown)
    }

    fn infer_call(&self, call: &syn::ExprCall) -> Ty {
        let Expr::Path(function) = &*call.func else {
            return Ty::Unknown;
        };
        let path = PathRef::of(&function.path);
        let name = path.segments.last().map(String::as_str).unwrap_or_default();
        if let Some(qself) = &function.qself {
            return made_by(self.type_of(&TypeExpr::of(&qself.ty)), name);
        }
        let owner = path.segments.len().checked_sub(2).map(|at| path.segments[at].as_str());
        let first = || call.args.first().map_or(Ty::Unknown, |argument| self.infer(argument));
        if matches!(name, "Some" | "Ok") && owner.is_none() {
            return first();
        }
        if owner.is_some_and(known::is_wrapper) && matches!(name, "new" | "clone" | "pin" | "from")
        {
            return first();
        }
        for target in self.targets(&path) {
            let ty = match target {
                Target::Extern(path) => self.infer_constructor(&path),
                Target::Item { module, name, rest } => self.infer_item_call(module, &name, &rest),
                Target::Module(_) | Target::Generic(_) => Ty::Unknown,
            };
            if ty != Ty::Unknown {
                return ty;
            }
        }
        // `Closure::wrap(…)` of a type nobody imported by name: some type, not one of ours.
        match owner {
            Some(owner) if owner.starts_with(char::is_uppercase) => {
                made_by(known::type_by_name(owner).unwrap_or(Ty::Foreign), name)
            }
            _ => Ty::Unknown,
        }
    }

    /// `Handle::current()`: an associated function of a known type gives that type.
    fn infer_constructor(&self, path: &[String]) -> Ty {
        let is_type = path.len() > 1 && path[path.len() - 2].starts_with(char::is_uppercase);
        if !is_type {
            return Ty::Unknown;
        }
        let name = path.last().map(String::as_str).unwrap_or_default();
        made_by(known::type_of(&path[..path.len() - 1]), name)
    }

    fn infer_item_call(&self, module: ModuleId, name: &str, rest: &[String]) -> Ty {
        match rest {
            [] => {
                let in_block = self.blocks.iter().rev().filter_map(|names| names.entries.get(name));
                let in_module = self.index.modules[module].names.entries.get(name);
                let mut meanings = in_block.chain(in_module).flatten();
                let returned = meanings.find_map(|meaning| match meaning {
                    Name::Value(ty) => Some(self.type_in(module, ty)),
                    Name::Type => Some(Ty::Local(module, name.to_owned())),
                    _ => None,
                });
                returned.unwrap_or(Ty::Unknown)
            }
            [method] => {
                let item = Target::Item { module, name: name.to_owned(), rest: Vec::new() };
                let ty = self.type_of_target(&item, Place::module(module), 0);
                match &ty {
                    Ty::Local(..) => self.own_method(&ty, method).unwrap_or(Ty::Unknown),
                    _ => made_by(ty, method),
                }
            }
            _ => Ty::Unknown,
        }
    }

    fn infer_method(&self, call: &syn::ExprMethodCall) -> Ty {
        let method = plain(&call.method);
        let receiver = self.infer(&call.receiver);
        if let Some(ty) = self.own_method(&receiver, &method) {
            return ty;
        }
        match (&receiver, method.as_str()) {
            (Ty::SpawnerBuilder, "build" | "build_local") => Ty::Spawner,
            (Ty::Context | Ty::Fresh, "child" | "with_deadline" | "with_timeout") => receiver,
            (Ty::Framework, _) => receiver,
            (_, "child") if !call.args.is_empty() => Ty::Child(self.task_depth),
            (Ty::Semaphore, name) if is_acquire(name) => Ty::Permit,
            (Ty::Unknown, name)
                if is_unmistakable_acquire(name)
                    || (is_acquire(name) && is_called_semaphore(&call.receiver)) =>
            {
                Ty::Permit
            }
            (Ty::Sluice, "next" | "try_next") | (Ty::Admitted, "turn") => Ty::Turn,
            (Ty::Sluice | Ty::Unknown, "admit") | (Ty::Turn, "retry_at") => Ty::Admitted,
            (Ty::Sluice | Ty::TaskGroup, _) if is_being_built(&call.receiver) => receiver,
            (Ty::Child(_), "clone") => receiver,
            (Ty::Command | Ty::SpawnerBuilder, _) => receiver,
            (Ty::Spawner, "name" | "stack_size" | "build_task") => receiver,
            (Ty::Permit, "merge" | "split") => Ty::Permit,
            (_, name) if known::keeps_type(name) => receiver,
            (Ty::Work, _) => Ty::Work,
            _ => Ty::Unknown,
        }
    }
}

pub(crate) fn member_name(member: &Member) -> String {
    match member {
        Member::Named(name) => plain(name),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// What an associated function of a known type gives: most give a value of it.
fn made_by(ty: Ty, function: &str) -> Ty {
    match ty {
        Ty::Context if makes(function) => Ty::Fresh,
        Ty::Turn | Ty::Admitted => Ty::Unknown,
        Ty::Sluice if !matches!(function, "new" | "builder") => Ty::Unknown,
        Ty::Spawner | Ty::Semaphore
            if function.starts_with("spawn") || function.starts_with("acquire") =>
        {
            Ty::Unknown
        }
        ty => ty,
    }
}

/// `TaskGroup::builder("x", 3).queue(10)`
fn is_being_built(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(call) => call.method != "build" && is_being_built(&call.receiver),
        Expr::Call(call) => matches!(&*call.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|last| last.ident == "builder")),
        _ => false,
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

//! The kinds of values: what an expression evaluates to.

use syn::parse::{ParseStream, Parser as _};
use syn::{Expr, Member};

use super::{Ty, is_acquire, is_unmistakable_acquire, member_name};
use crate::check::Checker;
use crate::check::context::makes;
use crate::check::yields::is_called_semaphore;
use crate::known;
use crate::names::resolve::{Place, Target};
use crate::names::types::{TypeExpr, plain};
use crate::names::{ModuleId, Name, PathRef};

impl Checker<'_> {
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
            Expr::Macro(call) => self.infer_macro(&call.mac),
            Expr::Match(choice) => {
                let arms = choice.arms.iter().map(|arm| self.infer(&arm.body));
                arms.into_iter().find(|ty| *ty != Ty::Unknown).unwrap_or(Ty::Unknown)
            }
            _ => Ty::Unknown,
        }
    }

    /// `vec![permit]` holds what it is given.
    fn infer_macro(&self, call: &syn::Macro) -> Ty {
        let name = call.path.segments.last().map(|last| plain(&last.ident)).unwrap_or_default();
        if !matches!(name.as_str(), "dbg" | "vec") {
            return Ty::Unknown;
        }
        let first = |input: ParseStream<'_>| {
            let first = input.parse::<Expr>()?;
            input.parse::<proc_macro2::TokenStream>()?;
            Ok(first)
        };
        first.parse2(call.tokens.clone()).map_or(Ty::Unknown, |first| self.infer(&first))
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
        let receiver = self.receiver(&call.receiver, &method);
        if let Some(ty) = self.own_method(&receiver, &method) {
            return ty;
        }
        match (&receiver, method.as_str()) {
            (Ty::SpawnerBuilder, "build" | "build_local") => Ty::Spawner,
            (Ty::Context | Ty::Fresh, "child" | "with_deadline" | "with_timeout") => receiver,
            (Ty::Framework, _) => receiver,
            (Ty::Spawner | Ty::Permit | Ty::Turn | Ty::Semaphore | Ty::TaskGroup, "into") => {
                receiver
            }
            (_, "child") if !call.args.is_empty() => Ty::Child(self.task_depth),
            (Ty::Semaphore, name) if is_acquire(name) => Ty::Permit,
            (Ty::Unknown, name)
                if is_unmistakable_acquire(name)
                    || (is_acquire(name) && is_called_semaphore(&call.receiver)) =>
            {
                Ty::Permit
            }
            (Ty::Sluice, "next" | "try_next" | "turn") | (Ty::Admitted, "turn") => Ty::Turn,
            (Ty::Sluice | Ty::Unknown, "admit") => Ty::Admitted,
            (Ty::Sluice, "enter") | (Ty::Turn, "wait_again") => Ty::Admitted,
            (Ty::Turn, "finish_and_next") => Ty::Tuple(vec![Ty::Unknown, Ty::Turn]),
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

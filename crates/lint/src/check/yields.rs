//! Which permit or turn an expression's value holds.
//!
//! The value may come through awaits, tries and the usual methods, from a combinator that was
//! given the acquire (`timeout(d, sem.acquire())`), out of a block or a branch, inside a tuple or a
//! literal, or from a function of the checked code that says it returns a permit. A future that
//! nobody awaits holds nothing.

use proc_macro2::Span;
use syn::{Expr, Stmt};

use super::Checker;
use super::spawn::path_span;
use crate::fragments::{self, Fragment, METAVARIABLE};
use crate::infer::{Ty, is_acquire, is_unmistakable_acquire};
use crate::known::{is_wrapper, keeps_type};
use crate::names::PathRef;
use crate::names::types::{TypeExpr, plain};

impl Checker<'_> {
    /// Where the permit or turn is acquired that the value of the expression holds.
    pub(super) fn yields(&self, expression: &Expr) -> Option<Span> {
        match expression {
            Expr::Await(inner) => self.yields_awaited(&inner.base),
            Expr::Try(inner) => self.yields(&inner.expr),
            Expr::Paren(inner) => self.yields(&inner.expr),
            Expr::Group(inner) => self.yields(&inner.expr),
            Expr::MethodCall(call) => self.yields_method(call),
            Expr::Call(call) => self.yields_call(call),
            Expr::Tuple(parts) => parts.elems.iter().find_map(|part| self.yields(part)),
            Expr::Array(parts) => parts.elems.iter().find_map(|part| self.yields(part)),
            Expr::Repeat(inner) => self.yields(&inner.expr),
            Expr::Struct(parts) => parts.fields.iter().find_map(|part| self.yields(&part.expr)),
            Expr::Block(inner) => self.yields_block(&inner.block),
            Expr::Unsafe(inner) => self.yields_block(&inner.block),
            Expr::Loop(inner) => self.yields_block(&inner.body),
            Expr::Break(inner) => inner.expr.as_ref().and_then(|value| self.yields(value)),
            Expr::Match(choice) => choice.arms.iter().find_map(|arm| self.yields(&arm.body)),
            Expr::If(branches) => self.yields_block(&branches.then_branch).or_else(|| {
                branches.else_branch.as_ref().and_then(|(_, otherwise)| self.yields(otherwise))
            }),
            Expr::Macro(call) => self.yields_macro(&call.mac),
            _ => None,
        }
    }

    /// The same for a future that somebody awaits. A variable that was given an acquire is one.
    fn yields_awaited(&self, future: &Expr) -> Option<Span> {
        match future {
            Expr::Paren(inner) => self.yields_awaited(&inner.expr),
            Expr::Reference(inner) => self.yields_awaited(&inner.expr),
            Expr::Path(path) => {
                let variable = path.path.get_ident().and_then(|name| self.variable(&plain(name)));
                variable.filter(|ty| is_guard(ty)).map(|_| path_span(path))
            }
            _ => self.yields_later(future),
        }
    }

    fn yields_later(&self, future: &Expr) -> Option<Span> {
        match future {
            Expr::Async(inner) => self.yields_block(&inner.block),
            Expr::Paren(inner) => self.yields_later(&inner.expr),
            _ => self.yields(future),
        }
    }

    fn yields_block(&self, block: &syn::Block) -> Option<Span> {
        match block.stmts.last() {
            Some(Stmt::Expr(value @ Expr::Break(_), _)) => self.yields(value),
            Some(Stmt::Expr(value, None)) => self.yields(value),
            _ => None,
        }
    }

    fn yields_method(&self, call: &syn::ExprMethodCall) -> Option<Span> {
        let method = plain(&call.method);
        let span = call.method.span();
        if is_acquire(&method) {
            return self.gives_permit(call, &method).then_some(span);
        }
        if is_passing(&method) {
            return self.yields_later(&call.receiver);
        }
        // `jobs.map(|_| sem.acquire())`: for whoever awaits them all.
        if let ("map", Some(Expr::Closure(closure))) = (method.as_str(), call.args.first()) {
            return self.yields(&closure.body);
        }
        if is_combinator(&method) {
            let given = call.args.iter().find_map(|argument| self.yields_awaited(argument));
            return given.or_else(|| self.yields_awaited(&call.receiver));
        }
        let receiver = self.receiver(&call.receiver, &method);
        let turn = matches!(
            (&receiver, method.as_str()),
            (Ty::Sluice, "next" | "try_next" | "turn") | (Ty::Admitted, "turn")
        );
        if turn {
            return Some(span);
        }
        // `self.permit.take()` gives one back on purpose.
        let moves = matches!(method.as_str(), "insert" | "pop" | "remove" | "replace" | "take");
        let own = self.own_method(&receiver, &method).filter(|_| !moves);
        own.is_some_and(|ty| is_guard(&ty)).then_some(span)
    }

    fn yields_call(&self, call: &syn::ExprCall) -> Option<Span> {
        let path = match &*call.func {
            Expr::Path(path) => path,
            // `(|| sem.try_acquire())()`
            Expr::Paren(inner) => {
                return match &*inner.expr {
                    Expr::Closure(closure) => self.yields(&closure.body),
                    _ => None,
                };
            }
            _ => return None,
        };
        let (name, owner) = split_owner(path)?;
        if is_combinator(&name) {
            return call.args.iter().find_map(|argument| self.yields_awaited(argument));
        }
        let owner_name = path.path.segments.iter().rev().nth(1).map(|owner| plain(&owner.ident));
        let wraps = name == "new" && owner_name.is_some_and(|owner| is_wrapper(&owner));
        if wraps || matches!(name.as_str(), "Ok" | "Some") || is_passing(&name) {
            return call.args.iter().find_map(|argument| self.yields_later(argument));
        }
        if is_acquire(&name) {
            return (self.type_of(&owner) == Ty::Semaphore).then(|| path_span(path));
        }
        let is_function = name.starts_with(char::is_lowercase) && name != "new";
        let returned = is_function.then(|| self.infer_own_call(path));
        returned.is_some_and(|ty| is_guard(&ty)).then(|| path_span(path))
    }

    /// `join!(sem.acquire(), other())`
    fn yields_macro(&self, call: &syn::Macro) -> Option<Span> {
        let name = call.path.segments.last().map(|last| plain(&last.ident))?;
        if !matches!(name.as_str(), "dbg" | "join" | "pin" | "try_join" | "vec") {
            return None;
        }
        let found = fragments::of_macro(call.tokens.clone());
        found.iter().find_map(|fragment| match fragment {
            Fragment::Expression(inner) => self.yields_awaited(inner),
            Fragment::Statements(_) => None,
        })
    }

    fn gives_permit(&self, call: &syn::ExprMethodCall, method: &str) -> bool {
        let receiver = self.receiver(&call.receiver, method);
        let by_name = || is_unmistakable_acquire(method) || is_called_semaphore(&call.receiver);
        match &receiver {
            Ty::Semaphore => true,
            Ty::Unknown => by_name(),
            // A limiter of the checked code: believe what it says it returns.
            Ty::Local(..) => match self.own_method(&receiver, method) {
                Some(ty) => is_guard(&ty),
                None => by_name(),
            },
            // A pool of connections, declared as such.
            _ => false,
        }
    }
}

/// A permit, a turn, or a type of the checked code that says it is a permit.
pub(super) fn is_guard(ty: &Ty) -> bool {
    match ty {
        Ty::Permit | Ty::Turn => true,
        Ty::Local(_, name) => name.ends_with("Permit"),
        _ => false,
    }
}

/// Whether an unknown value has a name that says what it is.
pub(crate) fn is_called_semaphore(expression: &Expr) -> bool {
    name_of(expression).is_some_and(|name| {
        name.contains("semaphore")
            || name.contains("permits")
            || name == "sem"
            || name.ends_with("_sem")
    })
}

pub(super) fn is_called_permit(expression: &Expr) -> bool {
    name_of(expression).is_some_and(|name| name.contains("permit"))
}

/// The variable, field or function that a value comes from, in small letters.
pub(super) fn name_of(expression: &Expr) -> Option<String> {
    let name = match expression {
        Expr::Path(path) => path.path.segments.last().map(|last| plain(&last.ident))?,
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => plain(name),
            syn::Member::Unnamed(_) => return name_of(&field.base),
        },
        Expr::Call(call) => return name_of(&call.func),
        Expr::MethodCall(call) if call.args.is_empty() || is_passing(&plain(&call.method)) => {
            let method = plain(&call.method);
            let through = is_passing(&method) || keeps_type(&method);
            return if through { name_of(&call.receiver) } else { Some(method) };
        }
        Expr::Await(inner) => return name_of(&inner.base),
        Expr::Try(inner) => return name_of(&inner.expr),
        Expr::Paren(inner) => return name_of(&inner.expr),
        Expr::Reference(inner) => return name_of(&inner.expr),
        Expr::Unary(inner) => return name_of(&inner.expr),
        Expr::Index(inner) => return name_of(&inner.expr),
        _ => return None,
    };
    let name = name.strip_prefix(METAVARIABLE).unwrap_or(&name);
    Some(name.to_lowercase())
}

/// `a::B::c` → `c` and the type `a::B`.
fn split_owner(path: &syn::ExprPath) -> Option<(String, TypeExpr)> {
    let mut whole = PathRef::of(&path.path);
    let name = whole.segments.pop()?;
    Some((name, TypeExpr::Path(whole, Vec::new())))
}

/// Methods that pass on what they were called on.
fn is_passing(method: &str) -> bool {
    matches!(
        method,
        "boxed"
            | "boxed_local"
            | "context"
            | "expect"
            | "fuse"
            | "in_current_span"
            | "inspect_err"
            | "instrument"
            | "into_future"
            | "map_err"
            | "now_or_never"
            | "ok"
            | "ok_or"
            | "ok_or_else"
            | "or_else"
            | "pin"
            | "transpose"
            | "unwrap"
            | "unwrap_or_else"
            | "with_context"
    )
}

/// Functions and methods that wait for the future they are given and pass on what it gives.
fn is_combinator(name: &str) -> bool {
    matches!(
        name,
        "block_on"
            | "join"
            | "join3"
            | "join_all"
            | "or"
            | "race"
            | "run_until"
            | "run_until_cancelled"
            | "run_until_cancelled_owned"
            | "select"
            | "timeout"
            | "timeout_at"
            | "try_join"
            | "try_join_all"
            | "until_interrupted"
            | "with_deadline"
            | "with_timeout"
    )
}

//! Code that has a permit and does nothing with it: patterns without names, bodies without work.

use syn::{Expr, Pat, Stmt};

use super::mentions::mentions;
use crate::names::types::plain;

/// Whether a pattern gives anything a name.
pub(super) fn binds_a_name(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) | Pat::Rest(_) | Pat::Lit(_) | Pat::Path(_) | Pat::Const(_) => false,
        Pat::Type(inner) => binds_a_name(&inner.pat),
        Pat::Paren(inner) => binds_a_name(&inner.pat),
        Pat::Reference(inner) => binds_a_name(&inner.pat),
        Pat::TupleStruct(inner) => inner.elems.iter().any(binds_a_name),
        Pat::Tuple(inner) => inner.elems.iter().any(binds_a_name),
        Pat::Slice(inner) => inner.elems.iter().any(binds_a_name),
        Pat::Or(inner) => inner.cases.iter().any(binds_a_name),
        _ => true,
    }
}

/// The same for a pattern that was parsed as an expression: `_`, `Ok(_)`, `(_, _)`.
pub(super) fn names_nothing(left: &Expr) -> bool {
    match left {
        Expr::Infer(_) => true,
        Expr::Paren(inner) => names_nothing(&inner.expr),
        Expr::Tuple(parts) => parts.elems.iter().all(names_nothing),
        Expr::Call(call) => call.args.iter().all(names_nothing),
        _ => false,
    }
}

/// Whether a match takes the permit in some arms, and none of them does anything while it lives.
pub(super) fn is_idle_match(choice: &syn::ExprMatch) -> bool {
    let mut successes = choice.arms.iter().filter(|arm| is_success(&arm.pat)).peekable();
    successes.peek().is_some() && successes.all(|arm| is_idle(&arm.pat, &arm.body))
}

pub(super) fn is_idle_block(pattern: &Pat, body: &syn::Block) -> bool {
    let idle = match &body.stmts[..] {
        [] => return is_success(pattern),
        [Stmt::Expr(value, _)] => is_idle(pattern, value),
        _ => false,
    };
    idle && is_success(pattern)
}

/// `Ok(…)`, `Some(…)`; but `Ok(())` says that there is nothing to hold.
fn is_success(pattern: &Pat) -> bool {
    let Pat::TupleStruct(of) = pattern else {
        return false;
    };
    let named = |last: &syn::PathSegment| last.ident == "Ok" || last.ident == "Some";
    let unit = matches!(of.elems.first(), Some(Pat::Tuple(inner)) if inner.elems.is_empty());
    of.path.segments.last().is_some_and(named) && !unit
}

fn is_idle(pattern: &Pat, body: &Expr) -> bool {
    let empty = matches!(body, Expr::Block(inner) if inner.block.stmts.is_empty());
    empty || (!binds_a_name(pattern) && !does_work(body))
}

/// `|_| ()`: a closure that does nothing while it has the permit, or returns a future without it.
pub(super) fn throws_away(argument: &Expr) -> bool {
    let Expr::Closure(closure) = argument else {
        return false;
    };
    let unused = closure.inputs.iter().all(|input| match input {
        Pat::Ident(name) => !mentions(&plain(&name.ident), &closure.body),
        pattern => !binds_a_name(pattern),
    });
    let asks = matches!(&*closure.body, Expr::MethodCall(call)
        if matches!(plain(&call.method).as_str(), "is_ok" | "is_err" | "is_some" | "is_none")
            && matches!(&*call.receiver, Expr::Path(path) if path.path.get_ident().is_some()));
    !closure.inputs.is_empty() && (asks || (unused && !does_work(&closure.body)))
}

/// Whether anything happens: a call, an await, more than one statement.
fn does_work(body: &Expr) -> bool {
    match body {
        Expr::Async(_) | Expr::Lit(_) | Expr::Path(_) => false,
        Expr::Tuple(parts) => parts.elems.iter().any(does_work),
        Expr::Paren(inner) => does_work(&inner.expr),
        Expr::Block(inner) => match &inner.block.stmts[..] {
            [] => false,
            [Stmt::Expr(value, _)] => does_work(value),
            _ => true,
        },
        Expr::Call(call) => {
            let is_variant = matches!(&*call.func, Expr::Path(path)
                if path.path.get_ident().is_some_and(|name| name == "Ok" || name == "Some"));
            !is_variant || call.args.iter().any(does_work)
        }
        _ => true,
    }
}

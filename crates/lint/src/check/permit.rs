//! `leaky-permit`: a permit is held by a named value and comes back when that drops.
//!
//! Findings: an acquire whose result nothing holds (`let _ =`, `_ =`, a bare statement, a `let`
//! whose pattern binds no name), one that is only asked `.is_ok()` and the like, `.forget()`,
//! permits added or taken by hand, and a permit put where it never drops. Not `drop(permit)`, and
//! not `if let Ok(_) = …`: there the permit lives until the end of the body.

use syn::{Expr, Pat, Stmt};

use super::{Checker, joined};
use crate::finding::Rule;
use crate::infer::{Ty, is_acquire};
use crate::known;
use crate::names::PathRef;
use crate::names::types::plain;

const HOLD: &str = "hold it for as long as the work takes: `let _permit = …;`";
const USE_DROP: &str = "let the value drop where its scope ends: that gives the permit back";
const USE_RESIZE: &str = "change the limit with `Permits::resize`; permits come back by drop";

impl Checker<'_> {
    pub(super) fn check_discarded(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Local(local) => {
                if let Some(init) = &local.init
                    && !binds_a_name(&local.pat)
                {
                    self.check_dropped_at_once(&init.expr);
                }
            }
            Stmt::Expr(Expr::Assign(_), _) => {
                let Stmt::Expr(expression, _) = statement else {
                    return;
                };
                self.check_discarded_assign(expression);
            }
            Stmt::Expr(expression, Some(_)) => self.check_dropped_at_once(expression),
            Stmt::Expr(_, None) | Stmt::Item(_) | Stmt::Macro(_) => {}
        }
    }

    /// `_ = semaphore.acquire().await`
    pub(super) fn check_discarded_assign(&mut self, expression: &Expr) {
        if let Expr::Assign(assign) = expression
            && matches!(&*assign.left, Expr::Infer(_))
        {
            self.check_dropped_at_once(&assign.right);
        }
    }

    fn check_dropped_at_once(&mut self, expression: &Expr) {
        if let Some(span) = self.acquired(expression) {
            let message = "the permit is dropped as soon as it is acquired".to_owned();
            self.report(Rule::LeakyPermit, span, message, HOLD);
        }
    }

    /// The acquire that an expression's value comes from, if it is one of permits.
    fn acquired(&self, expression: &Expr) -> Option<proc_macro2::Span> {
        match expression {
            Expr::Await(inner) => self.acquired(&inner.base),
            Expr::Try(inner) => self.acquired(&inner.expr),
            Expr::Paren(inner) => self.acquired(&inner.expr),
            Expr::Group(inner) => self.acquired(&inner.expr),
            Expr::MethodCall(call) => {
                let method = plain(&call.method);
                if is_acquire(&method) {
                    return self.gives_permit(call, &method).then(|| call.method.span());
                }
                is_passing(&method).then(|| self.acquired(&call.receiver)).flatten()
            }
            Expr::Call(call) => self.acquired_by_path(call),
            _ => None,
        }
    }

    /// `Semaphore::acquire(&semaphore)`
    fn acquired_by_path(&self, call: &syn::ExprCall) -> Option<proc_macro2::Span> {
        let Expr::Path(path) = &*call.func else {
            return None;
        };
        let (name, owner) = split_owner(path)?;
        let permits = is_acquire(&name) && self.type_of(&owner) == Ty::Semaphore;
        permits.then(|| super::spawn::path_span(path))
    }

    fn gives_permit(&self, call: &syn::ExprMethodCall, method: &str) -> bool {
        let receiver = self.infer(&call.receiver);
        match &receiver {
            Ty::Semaphore | Ty::Unknown => true,
            // A limiter of the checked code: believe what it says it returns.
            Ty::Local(..) => match self.own_method(&receiver, method) {
                Some(Ty::Permit) | None => true,
                Some(Ty::Local(_, name)) => name.contains("Permit"),
                Some(_) => false,
            },
            // A pool of connections, declared as such.
            _ => false,
        }
    }

    pub(super) fn check_permit_method(&mut self, call: &syn::ExprMethodCall) {
        let method = plain(&call.method);
        let span = call.method.span();
        match method.as_str() {
            "add_permits" | "forget_permits" => {
                let receiver = self.infer(&call.receiver);
                if self.own_method(&receiver, &method).is_none() {
                    let message = format!("`.{method}(…)` changes the count of permits by hand");
                    self.report(Rule::LeakyPermit, span, message, USE_RESIZE);
                }
            }
            "forget" if call.args.is_empty() => {
                let receiver = self.infer(&call.receiver);
                let own = self.own_method(&receiver, "forget").is_some();
                if !own && matches!(receiver, Ty::Permit | Ty::Unknown | Ty::Local(..)) {
                    let message = "a forgotten permit never comes back".to_owned();
                    self.report(Rule::LeakyPermit, span, message, USE_DROP);
                }
            }
            "is_ok" | "is_err" | "is_some" | "is_none" => {
                if let Some(acquired) = self.acquired(&call.receiver) {
                    let message = format!("`.{method}()` drops the permit it asks about");
                    let span = joined(acquired, span);
                    let help = "match on it and hold the permit: `if let Ok(permit) = …`";
                    self.report(Rule::LeakyPermit, span, message, help);
                }
            }
            "leak" if self.holds_permit(&call.receiver) => self.report_leak(span, ".leak()"),
            _ => {}
        }
    }

    /// `Box::leak(Box::new(permit))`, `Arc::into_raw(permit)`
    pub(super) fn check_leak_call(&mut self, call: &syn::ExprCall) {
        let Expr::Path(path) = &*call.func else {
            return;
        };
        let names: Vec<String> =
            path.path.segments.iter().rev().take(2).map(|segment| plain(&segment.ident)).collect();
        let [name, owner] = &names[..] else { return };
        let leaks = match name.as_str() {
            "leak" | "into_raw" => known::is_wrapper(owner),
            "new" => owner == "MaybeUninit",
            _ => false,
        };
        if leaks && call.args.iter().any(|argument| self.holds_permit(argument)) {
            self.report_leak(super::spawn::path_span(path), &format!("{owner}::{name}"));
        }
    }

    fn report_leak(&mut self, span: proc_macro2::Span, shown: &str) {
        let message = format!("`{shown}` leaks the permit it is given");
        self.report(Rule::LeakyPermit, span, message, USE_DROP);
    }

    fn holds_permit(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Macro(call) => {
                let tokens = call.mac.tokens.clone();
                crate::fragments::of_macro(tokens).iter().any(|fragment| match fragment {
                    crate::fragments::Fragment::Expression(inner) => self.holds_permit(inner),
                    crate::fragments::Fragment::Statements(_) => false,
                })
            }
            _ => self.infer(expression) == Ty::Permit || self.acquired(expression).is_some(),
        }
    }
}

/// `a::B::c` → `c` and the type `a::B`.
fn split_owner(path: &syn::ExprPath) -> Option<(String, crate::names::types::TypeExpr)> {
    let mut whole = PathRef::of(&path.path);
    let name = whole.segments.pop()?;
    Some((name, crate::names::types::TypeExpr::Path(whole, Vec::new())))
}

/// Methods that pass on what they were called on.
fn is_passing(method: &str) -> bool {
    matches!(
        method,
        "unwrap"
            | "expect"
            | "ok"
            | "map_err"
            | "context"
            | "with_context"
            | "unwrap_or_else"
            | "ok_or"
            | "ok_or_else"
            | "now_or_never"
            | "transpose"
    )
}

fn binds_a_name(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) | Pat::Rest(_) | Pat::Lit(_) | Pat::Path(_) | Pat::Const(_) => false,
        Pat::Type(inner) => binds_a_name(&inner.pat),
        Pat::Paren(inner) => binds_a_name(&inner.pat),
        Pat::Reference(inner) => binds_a_name(&inner.pat),
        Pat::TupleStruct(inner) => inner.elems.iter().any(binds_a_name),
        Pat::Tuple(inner) => inner.elems.iter().any(binds_a_name),
        _ => true,
    }
}

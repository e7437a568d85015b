//! `leaky-permit`: a permit is held by a named value and comes back when that drops.
//!
//! Findings: an acquire whose result nothing holds (`let _ =`, `_ =`, a bare statement, a pattern
//! without a name for it), one that is only asked `.is_ok()` and the like or that a closure throws
//! away (`.map(|_| ())`), `.forget()`, permits added or taken by hand, and a permit put where it
//! never drops: leaked, or in a static. The same for a turn. Not `drop(permit)`, and not
//! `if let Ok(_) = …`: there the permit lives until the end of the body.

use syn::spanned::Spanned as _;
use syn::{Expr, Pat, Stmt};

use super::idle::{binds_a_name, is_idle_block, is_idle_match, names_nothing, throws_away};
use super::yields::{is_called_permit, is_guard};
use super::{Checker, joined};
use crate::finding::Rule;
use crate::infer::Ty;
use crate::known;
use crate::names::types::plain;

/// Structs within structs, on the way from a static to a permit.
const MAX_FIELDS: usize = 4;

const HOLD: &str = "hold it for as long as the work takes: `let _permit = …;`";
const USE_DROP: &str = "let the value drop where its scope ends: that gives the permit back";
const USE_RESIZE: &str = "change the limit with `Permits::resize`; permits come back by drop";

impl Checker<'_> {
    pub(super) fn check_discarded(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Local(local) => {
                if let Some(init) = &local.init {
                    self.check_bound_by(&local.pat, &init.expr);
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
            && names_nothing(&assign.left)
        {
            self.check_dropped_at_once(&assign.right);
        }
    }

    /// What a pattern gives no name to is dropped at the end of the statement.
    fn check_bound_by(&mut self, pattern: &Pat, value: &Expr) {
        match (pattern, value) {
            (Pat::Type(inner), _) => self.check_bound_by(&inner.pat, value),
            (Pat::Paren(inner), _) => self.check_bound_by(&inner.pat, value),
            (_, Expr::Paren(inner)) => self.check_bound_by(pattern, &inner.expr),
            _ if !binds_a_name(pattern) => self.check_dropped_at_once(value),
            (Pat::Tuple(names), Expr::Tuple(values)) if names.elems.len() == values.elems.len() => {
                for (name, value) in names.elems.iter().zip(&values.elems) {
                    self.check_bound_by(name, value);
                }
            }
            (
                Pat::Tuple(names),
                Expr::Call(_) | Expr::MethodCall(_) | Expr::Await(_) | Expr::Try(_),
            ) => {
                let Ty::Tuple(parts) = self.infer(value) else {
                    return;
                };
                let lost = |(name, part): (&Pat, &Ty)| !binds_a_name(name) && is_guard(part);
                if names.elems.iter().zip(&parts).any(lost) {
                    self.report_dropped(value.span());
                }
            }
            _ => {}
        }
    }

    /// `if let Ok(_) = sem.acquire().await {}`: held for nothing.
    pub(super) fn check_idle_branch(&mut self, condition: &Expr, body: &syn::Block) {
        if let Expr::Let(condition) = condition
            && is_idle_block(&condition.pat, body)
        {
            self.check_dropped_at_once(&condition.expr);
        }
    }

    /// `match sem.acquire().await { Ok(_) => {} … }`
    pub(super) fn check_idle_arms(&mut self, choice: &syn::ExprMatch) {
        if is_idle_match(choice) {
            self.check_dropped_at_once(&choice.expr);
        }
    }

    fn check_dropped_at_once(&mut self, expression: &Expr) {
        if let Some(span) = self.yields(expression) {
            self.report_dropped(span);
        }
    }

    fn report_dropped(&mut self, span: proc_macro2::Span) {
        let message = "the permit is dropped as soon as it is acquired".to_owned();
        self.report(Rule::LeakyPermit, span, message, HOLD);
    }

    pub(super) fn check_permit_method(&mut self, call: &syn::ExprMethodCall) {
        let method = plain(&call.method);
        let span = call.method.span();
        match method.as_str() {
            "add_permits" | "forget_permits" => {
                let receiver = self.receiver(&call.receiver, &method);
                if self.own_method(&receiver, &method).is_none() {
                    let message = format!("`.{method}(…)` changes the count of permits by hand");
                    self.report(Rule::LeakyPermit, span, message, USE_RESIZE);
                }
            }
            "forget" if call.args.is_empty() => {
                let receiver = self.receiver(&call.receiver, &method);
                let own = self.own_method(&receiver, "forget").is_some();
                let permit = match receiver {
                    Ty::Unknown | Ty::Local(..) => is_called_permit(&call.receiver),
                    ty => is_guard(&ty),
                };
                if permit && !own {
                    let message = "a forgotten permit never comes back".to_owned();
                    self.report(Rule::LeakyPermit, span, message, USE_DROP);
                }
            }
            "and" | "err" | "is_ok" | "is_err" | "is_some" | "is_none" => {
                if let Some(acquired) = self.yields(&call.receiver) {
                    let message = format!("`.{method}(…)` drops the permit it asks about");
                    self.report_asked(joined(acquired, span), message);
                }
            }
            _ if known::hands_over(&method) => {
                if call.args.iter().any(throws_away)
                    && let Some(acquired) = self.yields(&call.receiver)
                {
                    let message = format!("the closure given to `.{method}(…)` drops the permit");
                    self.report_asked(joined(acquired, span), message);
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

    fn report_asked(&mut self, span: proc_macro2::Span, message: String) {
        let help = "match on it and hold the permit: `if let Ok(permit) = …`";
        self.report(Rule::LeakyPermit, span, message, help);
    }

    /// A static is never dropped, nor is what it holds.
    pub(super) fn check_static(&mut self, item: &syn::ItemStatic, ty: &Ty) {
        if self.keeps_guard(ty, MAX_FIELDS) {
            let message = "a permit in a static never comes back".to_owned();
            self.report(Rule::LeakyPermit, item.ty.span(), message, USE_DROP);
        }
    }

    fn keeps_guard(&self, ty: &Ty, depth: usize) -> bool {
        match ty {
            _ if is_guard(ty) => true,
            _ if depth == 0 => false,
            Ty::Tuple(parts) => parts.iter().any(|part| self.keeps_guard(part, depth - 1)),
            Ty::Local(module, name) => {
                let fields = self.field_types(*module, name);
                fields.iter().any(|field| self.keeps_guard(field, depth - 1))
            }
            _ => false,
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
            _ => is_guard(&self.infer(expression)) || self.yields(expression).is_some(),
        }
    }
}

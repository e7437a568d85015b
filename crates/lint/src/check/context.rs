//! `context-dropped`: a task hears of cancellation and deadlines through the context it is given.
//!
//! Findings: a task closure that takes no context, names it `_`, or never mentions it; a fresh
//! context built inside a task closure; a fresh one given to a submit where there is another: in a
//! task, in a function that was given one, in a method of a type that has one; the same for a fresh
//! one given to whoever waits for a permit or a turn.

use syn::spanned::Spanned as _;
use syn::{Expr, FnArg, Pat};

use super::expected::is_default;
use super::mentions::{mentions, mentions_in_block};
use super::spawn::path_span;
use super::tasks::Submit;
use super::{Checker, joined};
use crate::finding::Rule;
use crate::infer::{Ty, is_acquire};
use crate::known;
use crate::names::PathRef;
use crate::names::resolve::Target;
use crate::names::types::plain;

const USE_IT: &str = "take it as `|cx|` and use it: pass `cx.child()` on, or race with its \
                      cancellation";
const USE_CHILD: &str = "derive it from the caller's: `cx.child()`; work that outlives the caller \
                         goes to `submit_detached`";

impl Checker<'_> {
    pub(super) fn check_task_closure(&mut self, closure: &syn::ExprClosure) {
        let Some(first) = closure.inputs.first() else {
            let bars = joined(closure.inputs_begin.spans[0], closure.inputs_end.spans[0]);
            let message = "the task takes no context".to_owned();
            return self.report(Rule::ContextDropped, bars, message, USE_IT);
        };
        self.check_context_parameter(first, |name| mentions(name, &closure.body));
    }

    /// The same for a function that is submitted by name.
    pub(super) fn check_task_function(&mut self, item: &syn::ItemFn) {
        match item.sig.inputs.first() {
            Some(FnArg::Typed(first)) => {
                self.check_context_parameter(&first.pat, |name| {
                    mentions_in_block(name, &item.block)
                });
            }
            Some(FnArg::Receiver(_)) => {}
            None => {
                let message = "the task takes no context".to_owned();
                self.report(Rule::ContextDropped, item.sig.ident.span(), message, USE_IT);
            }
        }
    }

    fn check_context_parameter(&mut self, pattern: &Pat, is_used: impl Fn(&str) -> bool) {
        match pattern {
            Pat::Type(inner) => self.check_context_parameter(&inner.pat, is_used),
            Pat::Paren(inner) => self.check_context_parameter(&inner.pat, is_used),
            Pat::Wild(wild) => {
                let message = "the task ignores its context".to_owned();
                self.report(Rule::ContextDropped, wild.underscore_token.spans[0], message, USE_IT);
            }
            Pat::Ident(name) if !is_used(&plain(&name.ident)) => {
                let message = format!("the task never uses its context `{}`", name.ident);
                self.report(Rule::ContextDropped, name.ident.span(), message, USE_IT);
            }
            _ => {}
        }
    }

    /// `group.submit(Context::new(), …)` where the caller's context is at hand.
    pub(super) fn check_given_context(&mut self, submit: &Submit<'_>) {
        if !(self.has_context || self.in_task) || submit.is_detached() {
            return;
        }
        let [given, _, ..] = &submit.arguments[..] else {
            return;
        };
        if self.is_fresh_value(given) {
            self.report_fresh(source_of(given));
        }
    }

    /// `permits.acquire(&Context::new())`: to wait in the name of nobody.
    pub(super) fn check_waiting(&mut self, call: &syn::ExprMethodCall) {
        let method = plain(&call.method);
        let waits = is_acquire(&method) || matches!(method.as_str(), "enter" | "turn");
        if !waits || !(self.has_context || self.in_task) {
            return;
        }
        if let Some(given) = call.args.first()
            && self.infer(given) == Ty::Fresh
        {
            self.report_fresh(source_of(given));
        }
    }

    /// Whether the value is a context that nobody else has; `Default::default()` is one here.
    pub(super) fn is_fresh_value(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Reference(inner) => self.is_fresh_value(&inner.expr),
            Expr::Paren(inner) => self.is_fresh_value(&inner.expr),
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if is_default(path)) => true,
            _ => self.infer(expression) == Ty::Fresh,
        }
    }

    pub(super) fn check_fresh_context(
        &mut self,
        path: &syn::ExprPath,
        written: &PathRef,
        target: Option<&Target>,
    ) {
        if self.in_task && self.is_fresh(written, target) {
            self.report_fresh(path_span(path));
        }
    }

    pub(super) fn report_fresh(&mut self, span: proc_macro2::Span) {
        let message = "a fresh context takes the place of the one that was given".to_owned();
        self.report(Rule::ContextDropped, span, message, USE_CHILD);
    }

    /// Whether a path is a constructor of the kernel's context. A `Context` of another crate, such
    /// as a template engine's, is not; one that cannot be followed is taken for the kernel's.
    fn is_fresh(&self, written: &PathRef, target: Option<&Target>) -> bool {
        match target {
            None => {
                matches!(&written.segments[..], [.., owner, name] if owner == "Context" && makes(name))
            }
            Some(Target::Extern(real)) => match real.split_last() {
                Some((name, owner)) => makes(name) && known::type_of(owner) == Ty::Context,
                None => false,
            },
            Some(Target::Item { module, name, rest }) => {
                let made = matches!(&rest[..], [method] if makes(method));
                made && name == "Context" && self.is_kernel(*module)
            }
            Some(Target::Module(_) | Target::Generic(_)) => false,
        }
    }
}

/// Where a value is made or named: the path in `&Context::new().child()`.
fn source_of(expression: &Expr) -> proc_macro2::Span {
    match expression {
        Expr::Reference(inner) => source_of(&inner.expr),
        Expr::Paren(inner) => source_of(&inner.expr),
        Expr::MethodCall(call) => source_of(&call.receiver),
        Expr::Call(call) => source_of(&call.func),
        Expr::Block(inner) => match inner.block.stmts.last() {
            Some(syn::Stmt::Expr(value, None)) => source_of(value),
            _ => expression.span(),
        },
        Expr::Path(path) => path_span(path),
        _ => expression.span(),
    }
}

/// Functions of a context that make one out of nothing.
pub(crate) fn makes(function: &str) -> bool {
    matches!(function, "new" | "default" | "background" | "root")
}

//! `unbounded-queue`: a channel or queue between tasks has a bound.
//!
//! A constructor is a finding wherever its path is taken, called or not. A bound of `usize::MAX`
//! is none. Types that have no bounded form are findings wherever a value of them is made.

use syn::Expr;

use super::Checker;
use super::spawn::path_span;
use crate::finding::Rule;
use crate::known;
use crate::names::PathRef;
use crate::names::resolve::Target;
use crate::names::types::plain;

const USE_BOUND: &str = "give it a bound: `tokio::sync::mpsc::channel(n)`, `sync_channel(n)`, \
                         `bounded(n)`, `ArrayQueue::new(n)`; a full queue then slows its senders";

impl Checker<'_> {
    pub(super) fn report_queue(&mut self, span: proc_macro2::Span, shown: &str) {
        let message = format!("{shown} makes a queue without a bound");
        self.report(Rule::UnboundedQueue, span, message, USE_BOUND);
    }

    /// `sync_channel(usize::MAX)`
    pub(super) fn check_bound(&mut self, call: &syn::ExprCall) {
        let Expr::Path(function) = &*call.func else {
            return;
        };
        if !call.args.iter().any(is_beyond_reach) {
            return;
        }
        let bounded =
            |target: &Target| matches!(target, Target::Extern(path) if known::is_bounded(path));
        if self.targets(&PathRef::of(&function.path)).iter().any(bounded) {
            self.report_queue(path_span(function), "a bound that nothing reaches");
        }
    }
}

/// More than fits into memory.
const BEYOND_REACH: u128 = u32::MAX as u128;

/// `usize::MAX`, also halved or cast, `!0`, and `Semaphore::MAX_PERMITS`.
fn is_beyond_reach(expression: &Expr) -> bool {
    const NUMBERS: &[&str] = &["i32", "i64", "isize", "u32", "u64", "usize"];
    match expression {
        Expr::Cast(inner) => is_beyond_reach(&inner.expr),
        Expr::Paren(inner) => is_beyond_reach(&inner.expr),
        Expr::Binary(inner) => is_beyond_reach(&inner.left),
        Expr::MethodCall(inner) => is_beyond_reach(&inner.receiver),
        Expr::Unary(inner) => matches!(inner.op, syn::UnOp::Not(_)),
        Expr::Call(inner) => matches!(&*inner.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|last| last.ident == "max_value")),
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
            number.base10_parse::<u128>().map_or(true, |number| number >= BEYOND_REACH)
        }
        Expr::Path(path) => {
            let names: Vec<String> = path.path.segments.iter().map(|s| plain(&s.ident)).collect();
            match &names[..] {
                [.., owner, name] if name == "MAX" => NUMBERS.contains(&owner.as_str()),
                [.., name] => name == "MAX_PERMITS",
                [] => false,
            }
        }
        _ => false,
    }
}

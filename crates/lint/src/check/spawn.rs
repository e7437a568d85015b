//! `naked-spawn`, and the other rules that a path alone can break.
//!
//! A path is a finding wherever it is taken, called or not: `let go = tokio::spawn;` is one. A
//! method is decided by its receiver:
//!
//! | receiver | `.spawn(…)` | `.spawn_blocking(…)` and other unmistakable names |
//! |---|---|---|
//! | a spawner | finding | finding |
//! | a command | – | – |
//! | a type of the checked code with that method | – (its body is checked) | – |
//! | another declared type | if given an async block or a closure | finding |
//! | unknown | if given one async block, closure, future or call | finding |

use syn::Expr;
use syn::spanned::Spanned;

use super::context::makes;
use super::{Checker, joined};
use crate::finding::Rule;
use crate::fragments::METAVARIABLE;
use crate::infer::Ty;
use crate::known;
use crate::names::PathRef;
use crate::names::resolve::Target;
use crate::names::types::{TypeExpr, plain};

const USE_GROUP: &str = "submit it to a group: `group.submit(cx, |cx| async move { … })`";
const USE_BLOCKING: &str = "submit it to a group: `group.submit_blocking(cx, |cx| { … })`";
const USE_DROP: &str = "let the value drop where its scope ends: that gives the permit back";
const USE_RESIZE: &str = "change the limit with `Permits::resize`; permits come back by drop";

impl Checker<'_> {
    /// All that is forbidden by name: spawns, `mem::forget`, permits by hand, fresh contexts.
    pub(super) fn check_path(&mut self, path: &syn::ExprPath) {
        if let Some(name) = path.path.get_ident()
            && self.variable(&plain(name)).is_some()
        {
            return;
        }
        if let Some(qself) = &path.qself {
            return self.check_qualified(path, &TypeExpr::of(&qself.ty));
        }
        let written = PathRef::of(&path.path);
        let targets = self.targets(&written);
        if targets.is_empty() {
            self.check_fresh_context(path, &written, None);
        }
        for target in targets {
            if let Target::Extern(real) = &target
                && self.check_extern(path, real)
            {
                return;
            }
            self.check_fresh_context(path, &written, Some(&target));
        }
    }

    fn check_extern(&mut self, path: &syn::ExprPath, real: &[String]) -> bool {
        let span = path_span(path);
        let shown = real.join("::").replace(METAVARIABLE, "$");
        if known::is_spawn(real) {
            self.report_spawn(span, &shown, real[0] == "std");
            return true;
        }
        if known::is_unbounded(real) {
            self.report_queue(span, &format!("`{shown}`"));
            return true;
        }
        if known::is_forget(real) {
            let message = format!("`{shown}` keeps a value from being dropped");
            self.report(Rule::LeakyPermit, span, message, USE_DROP);
            return true;
        }
        let (name, owner) = real.split_last().map_or(("", real), |(n, owner)| (n.as_str(), owner));
        self.check_associated(span, &known::type_of(owner), name)
    }

    /// `<Handle>::spawn`, `<Semaphore as Limit>::add_permits`.
    fn check_qualified(&mut self, path: &syn::ExprPath, of: &TypeExpr) {
        let ty = self.type_of(of);
        let Some(name) = path.path.segments.last().map(|last| plain(&last.ident)) else {
            return;
        };
        if let TypeExpr::Path(owner, _) = of {
            if owner.segments[0].starts_with(METAVARIABLE) && known::is_unmistakable_spawn(&name) {
                return self.report_spawn(path_span(path), &name, false);
            }
            for target in self.targets(owner) {
                if let Target::Extern(mut real) = target {
                    real.push(name.clone());
                    if self.check_extern(path, &real) {
                        return;
                    }
                }
            }
        }
        if ty == Ty::Context && makes(&name) && self.in_task {
            return self.report_fresh(path_span(path));
        }
        self.check_associated(path_span(path), &ty, &name);
    }

    fn check_associated(&mut self, span: proc_macro2::Span, ty: &Ty, name: &str) -> bool {
        match (ty, name) {
            // As a value nobody knows the arguments: `ThreadPool::join` counts.
            (Ty::Spawner, name) if known::starts_on_spawner(name, 2) => {
                self.report_spawn(span, name, false);
            }
            (Ty::Permit | Ty::Turn, "forget") => {
                let message = "a forgotten permit never comes back".to_owned();
                self.report(Rule::LeakyPermit, span, message, USE_DROP);
            }
            (Ty::Semaphore, "add_permits" | "forget_permits") => {
                let message = format!("`{name}` changes the count of permits by hand");
                self.report(Rule::LeakyPermit, span, message, USE_RESIZE);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn check_spawn_method(&mut self, call: &syn::ExprMethodCall) {
        let method = plain(&call.method);
        let parallel = known::is_parallel_name(&method);
        if !parallel && !known::starts_on_spawner(&method, call.args.len()) || method == "unblock" {
            return;
        }
        let receiver = self.receiver(&call.receiver, &method);
        if self.own_method(&receiver, &method).is_some() {
            return;
        }
        if parallel || (receiver == Ty::Spawner && !known::is_spawn_name(&method)) {
            return self.report_spawn(call.method.span(), &format!(".{method}(…)"), parallel);
        }
        if !known::is_spawn_name(&method) {
            return;
        }
        let unmistakable = known::is_unmistakable_spawn(&method);
        let starts_work = match receiver {
            Ty::Spawner => true,
            Ty::Foreign | Ty::Framework => unmistakable || self.is_given_work(call, false),
            Ty::Unknown | Ty::Local(..) => unmistakable || self.is_given_work(call, true),
            _ => false,
        };
        if starts_work {
            let span = call.method.span();
            self.report_spawn(span, &format!(".{method}(…)"), false);
        }
    }

    /// `Extend::extend(&mut set, …)`, `Executor::execute(&executor, …)`: a trait's method by path.
    pub(super) fn check_spawn_call(&mut self, call: &syn::ExprCall) {
        let Expr::Path(path) = &*call.func else {
            return;
        };
        let names: Vec<String> = path.path.segments.iter().map(|s| plain(&s.ident)).collect();
        let [.., owner, name] = &names[..] else { return };
        let of_trait = matches!(owner.as_str(), "Executor" | "Extend" | "Spawn" | "SpawnExt");
        if of_trait
            && known::starts_on_spawner(name, call.args.len().saturating_sub(1))
            && call.args.first().is_some_and(|first| self.infer(first) == Ty::Spawner)
        {
            self.report_spawn(path_span(path), name, false);
        }
    }

    /// `$entity::spawn(world, …)`: a macro's argument that is not given anything to run.
    pub(super) fn is_idle_argument(&self, call: &syn::ExprCall) -> bool {
        let Expr::Path(path) = &*call.func else {
            return false;
        };
        let names = PathRef::of(&path.path).segments;
        let given = names.len() > 1 && names[0].starts_with(METAVARIABLE);
        given
            && names.last().is_some_and(|last| last == "spawn")
            && !matches!(&call.args.iter().collect::<Vec<_>>()[..], [work] if self.is_work(work, true) || is_metavariable(work))
    }

    pub(super) fn report_spawn(&mut self, span: proc_macro2::Span, shown: &str, thread: bool) {
        let blocking = thread || shown.contains("blocking");
        let what = if thread { "thread" } else { "task" };
        let message = format!("`{shown}` starts a {what} that no group owns");
        let help = if blocking { USE_BLOCKING } else { USE_GROUP };
        self.report(Rule::NakedSpawn, span, message, help);
    }

    /// Whether the one argument looks like something to run; calls count if `or_call`.
    fn is_given_work(&self, call: &syn::ExprMethodCall, or_call: bool) -> bool {
        let [argument] = &call.args.iter().collect::<Vec<_>>()[..] else {
            return false;
        };
        self.is_work(argument, or_call)
    }

    fn is_work(&self, argument: &Expr, or_call: bool) -> bool {
        if self.infer(argument) == Ty::Work {
            return true;
        }
        or_call
            && match argument {
                Expr::Call(call) => !is_constructor(call),
                Expr::MethodCall(_) => true,
                _ => false,
            }
    }
}

fn is_metavariable(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path)
        if path.path.get_ident().is_some_and(|name| plain(name).starts_with(METAVARIABLE)))
}

/// `Bundle::new(…)`, `Sprite(…)`: makes a value, as game engines spawn them; not a future.
fn is_constructor(call: &syn::ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else {
        return false;
    };
    let names: Vec<String> = path.path.segments.iter().map(|s| plain(&s.ident)).collect();
    let upper = |name: &str| name.starts_with(char::is_uppercase);
    match &names[..] {
        [.., name] if upper(name) => true,
        [.., owner, name] if upper(owner) => {
            matches!(name.as_str(), "new" | "default" | "from")
                || name.starts_with("with_")
                || name.starts_with("from_")
        }
        _ => false,
    }
}

pub(super) fn path_span(path: &syn::ExprPath) -> proc_macro2::Span {
    let span = path.span();
    let last = path.path.segments.last().map_or(span, |last| last.ident.span());
    let first = match (&path.qself, path.path.leading_colon) {
        (Some(qself), _) => qself.lt_token.span(),
        (None, Some(colon)) => colon.spans[0],
        _ => path.path.segments.first().map_or(span, |first| first.ident.span()),
    };
    joined(first, last)
}

//! What runs as a task: closures given to a submit, and job handlers.
//!
//! | written | is |
//! |---|---|
//! | the last argument of `submit`, `submit_fallible`, `submit_blocking`, `submit_detached`, `try_submit`, `try_submit_detached`, and of `run` on a `TaskGroup` | a task |
//! | a closure given to `.handler(…)`, `.handle(…)`, `.consumer(…)`, `.on_message(…)` | a handler |
//! | a function marked `#[handler]`, `#[job]`, `#[consumer]` | a handler |
//! | `handle` of `impl Handler`, `execute` of `impl Executor`, `run` and `perform` of `impl Job`, `consume` of `impl Consumer`, `work` of `impl Worker` | a handler |
//!
//! A bare `submit` is the kernel's only if its receiver is a `TaskGroup`, or if the receiver is
//! unknown and there are two arguments or more: forms and GPU queues have a submit too.

use std::collections::HashSet;

use syn::visit::{self, Visit};
use syn::{Expr, Stmt};

use super::Checker;
use crate::infer::Ty;
use crate::names::PathRef;
use crate::names::resolve::Target;
use crate::names::types::{TypeExpr, plain};

const HANDLER_TRAITS: &[(&str, &[&str])] = &[
    ("Handler", &["handle"]),
    ("JobHandler", &["handle"]),
    ("MessageHandler", &["handle"]),
    ("Executor", &["execute"]),
    ("Job", &["run", "perform"]),
    ("Consumer", &["consume"]),
    ("Worker", &["work"]),
];

/// Crates whose traits are called the same and are something else: their executor runs futures.
const OTHER_CRATES: &[&str] = &["hyper", "hyper_util", "tonic", "axum", "tower", "sqlx"];

/// A call that submits a task.
pub(super) struct Submit<'a> {
    pub(super) name: String,
    pub(super) span: proc_macro2::Span,
    pub(super) group: &'a Expr,
    /// The path of `TaskGroup::submit(&group, …)`.
    pub(super) function: Option<&'a Expr>,
    /// What is submitted, with its context or name before it.
    pub(super) arguments: Vec<&'a Expr>,
}

pub(super) fn is_submit_name(name: &str) -> bool {
    matches!(
        name,
        "submit"
            | "submit_fallible"
            | "submit_blocking"
            | "submit_detached"
            | "try_submit"
            | "try_submit_detached"
            | "run"
    )
}

impl Checker<'_> {
    pub(super) fn submit_by_method<'a>(&self, call: &'a syn::ExprMethodCall) -> Option<Submit<'a>> {
        let name = plain(&call.method);
        if !is_submit_name(&name) {
            return None;
        }
        let group = self.infer(&call.receiver);
        let own = self.own_method(&group, &name).is_some();
        let ours = match group {
            Ty::TaskGroup | Ty::Child(_) => true,
            Ty::Unknown | Ty::Local(..) if !own => match name.as_str() {
                "run" => false,
                "submit" | "try_submit" => call.args.len() >= 2,
                _ => true,
            },
            _ => false,
        };
        ours.then(|| Submit {
            name,
            span: call.method.span(),
            group: &call.receiver,
            function: None,
            arguments: call.args.iter().collect(),
        })
    }

    /// `TaskGroup::submit(&group, cx, |cx| …)`
    pub(super) fn submit_by_path<'a>(&self, call: &'a syn::ExprCall) -> Option<Submit<'a>> {
        let Expr::Path(path) = &*call.func else {
            return None;
        };
        let mut owner = PathRef::of(&path.path);
        let name = owner.segments.pop().filter(|name| is_submit_name(name))?;
        let of = match &path.qself {
            Some(qself) => self.type_of(&TypeExpr::of(&qself.ty)),
            None if owner.segments.is_empty() => return None,
            None => self.type_of(&TypeExpr::Path(owner, Vec::new())),
        };
        let mut arguments = call.args.iter();
        let group = arguments.next().filter(|_| of == Ty::TaskGroup)?;
        Some(Submit {
            name,
            span: super::spawn::path_span(path),
            group,
            function: Some(&call.func),
            arguments: arguments.collect(),
        })
    }

    /// Checks a submission and walks its parts.
    pub(super) fn submit(&mut self, submit: &Submit<'_>) {
        self.check_nested(submit);
        self.check_given_context(submit);
        if let Some(function) = submit.function {
            self.visit_expr(function);
        }
        self.visit_expr(submit.group);
        let Some((task, before)) = submit.arguments.split_last() else {
            return;
        };
        before.iter().for_each(|argument| self.visit_expr(argument));
        self.task_argument(task, submit.name != "run");
    }

    /// Walks what is submitted: the closure in it runs as a task.
    fn task_argument(&mut self, argument: &Expr, has_context: bool) {
        match argument {
            Expr::Closure(closure) => {
                if has_context {
                    self.check_task_closure(closure);
                }
                self.task_closure(closure);
            }
            Expr::Paren(inner) => self.task_argument(&inner.expr, has_context),
            Expr::Group(inner) => self.task_argument(&inner.expr, has_context),
            Expr::Reference(inner) => self.task_argument(&inner.expr, has_context),
            Expr::Call(call) if closure_in(argument).is_some() => {
                self.visit_expr(&call.func);
                call.args.iter().for_each(|inner| self.task_argument(inner, has_context));
            }
            // `{ let group = group.clone(); move |cx| … }`
            Expr::Block(block) if block.label.is_none() => self.scoped(|checker| {
                for statement in &block.block.stmts {
                    match statement {
                        Stmt::Expr(last, None) => checker.task_argument(last, has_context),
                        statement => checker.visit_stmt(statement),
                    }
                }
            }),
            _ => self.visit_expr(argument),
        }
    }

    pub(super) fn task_closure(&mut self, closure: &syn::ExprClosure) {
        self.task_depth += 1;
        let outer = std::mem::replace(&mut self.in_task, true);
        self.closure(closure, &Ty::Context);
        self.in_task = outer;
        self.task_depth -= 1;
    }

    /// The methods of this `impl` that handle jobs.
    pub(super) fn handler_trait(&self, item: &syn::ItemImpl) -> Option<&'static [&'static str]> {
        let (path, _) = item.trait_.as_ref()?;
        let path = PathRef::of(path);
        let elsewhere = |target: &Target| matches!(target, Target::Extern(path) if OTHER_CRATES.contains(&path[0].as_str()));
        if self.targets(&path).iter().any(elsewhere) {
            return None;
        }
        let name = path.segments.last()?;
        HANDLER_TRAITS.iter().find(|(known, _)| known == name).map(|(_, methods)| *methods)
    }
}

/// A method that registers a handler.
pub(super) fn is_handler_method(call: &syn::ExprMethodCall) -> bool {
    ["handler", "handle", "consumer", "on_message"].iter().any(|name| call.method == name)
}

pub(super) fn is_handler_function(attributes: &[syn::Attribute]) -> bool {
    let last = |attribute: &syn::Attribute| {
        attribute.path().segments.last().is_some_and(|last| {
            ["handler", "job", "consumer"].iter().any(|name| last.ident == name)
        })
    };
    attributes.iter().any(last)
}

/// The closure in an expression that is one, or boxes one.
pub(super) fn closure_in(expression: &Expr) -> Option<&syn::ExprClosure> {
    match expression {
        Expr::Closure(closure) => Some(closure),
        Expr::Paren(inner) => closure_in(&inner.expr),
        Expr::Group(inner) => closure_in(&inner.expr),
        Expr::Reference(inner) => closure_in(&inner.expr),
        Expr::Call(call) if call.args.len() == 1 => {
            let Expr::Path(path) = &*call.func else {
                return None;
            };
            let boxes = path.path.segments.first().is_some_and(|first| {
                ["Box", "Arc", "Rc", "Some"].iter().any(|name| first.ident == name)
            });
            boxes.then(|| call.args.first().and_then(closure_in)).flatten()
        }
        _ => None,
    }
}

/// Names that stand as the task of a submit, or as a handler.
#[derive(Default)]
pub(super) struct TaskNames {
    pub(super) submitted: HashSet<String>,
    pub(super) handled: HashSet<String>,
}

/// Collects the names from what `walk` visits. They are needed before the walk: a closure is
/// bound before it is submitted.
pub(super) fn submitted_names(walk: impl FnOnce(&mut TaskNames)) -> TaskNames {
    let mut names = TaskNames::default();
    walk(&mut names);
    names
}

impl<'ast> Visit<'ast> for TaskNames {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let name = call.args.last().and_then(named);
        if let Some(name) = name {
            if is_submit_name(&plain(&call.method)) && call.args.len() >= 2 {
                self.submitted.insert(name);
            } else if is_handler_method(call) {
                self.handled.insert(name);
            }
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        visit::visit_expr_call(self, call);
        if let Expr::Path(path) = &*call.func
            && path.path.segments.len() > 1
            && path.path.segments.last().is_some_and(|last| is_submit_name(&plain(&last.ident)))
            && call.args.len() >= 3
        {
            self.submitted.extend(call.args.last().and_then(named));
        }
    }

    // Types and attributes hold no calls.
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The variable or function in `job`, `&job`, `job.clone()`, `Box::new(job)`.
fn named(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Path(path) => path.path.get_ident().map(plain),
        Expr::Reference(inner) => named(&inner.expr),
        Expr::Paren(inner) => named(&inner.expr),
        Expr::MethodCall(call) if call.method == "clone" => named(&call.receiver),
        Expr::Call(call) if call.args.len() == 1 => call.args.first().and_then(named),
        _ => None,
    }
}

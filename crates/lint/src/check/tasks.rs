//! What runs as a task: the last argument of a submit.
//!
//! The submits are `submit`, `submit_fallible`, `submit_blocking`, `submit_detached`,
//! `submit_thread`, their `try_` forms, and `run`. Other things have methods of these names, so
//! that the receiver decides:
//!
//! | receiver | a submit of the kernel |
//! |---|---|
//! | a `TaskGroup`, a child of one | always |
//! | another declared type, or one with such a method of its own | never |
//! | unknown | `submit` and `try_submit` given a context, or if it is called a group; `run` if both; the longer names always |

use syn::visit::Visit as _;
use syn::{Expr, Stmt};

use super::Checker;
use super::yields::name_of;
use crate::infer::Ty;
use crate::names::PathRef;
use crate::names::types::{TypeExpr, plain};

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

impl Submit<'_> {
    /// Whether the task outlives its caller, and is given a name in place of a context.
    pub(super) fn is_detached(&self) -> bool {
        self.name.ends_with("_detached") || self.name.ends_with("_thread")
    }
}

pub(super) fn is_submit_name(name: &str) -> bool {
    let kind = name.strip_prefix("try_").unwrap_or(name).strip_prefix("submit");
    let kinds = ["", "_blocking", "_detached", "_fallible", "_thread"];
    name == "run" || kind.is_some_and(|kind| kinds.contains(&kind))
}

impl Checker<'_> {
    pub(super) fn submit_by_method<'a>(&self, call: &'a syn::ExprMethodCall) -> Option<Submit<'a>> {
        let name = plain(&call.method);
        if !is_submit_name(&name) {
            return None;
        }
        let group = self.receiver(&call.receiver, &name);
        let own = self.own_method(&group, &name).is_some();
        let ours = match group {
            Ty::TaskGroup | Ty::Child(_) => true,
            Ty::Unknown | Ty::Local(..) if !own => self.looks_like_submit(call, &name),
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

    /// Decides by the shape, where nothing is known of the receiver.
    fn looks_like_submit(&self, call: &syn::ExprMethodCall, name: &str) -> bool {
        let [first, .., _] = &call.args.iter().collect::<Vec<_>>()[..] else {
            return false;
        };
        let group = name_of(&call.receiver).is_some_and(|name| name.contains("group"));
        match name {
            "run" => group && self.is_context(first),
            "submit" | "try_submit" => {
                (group && !matches!(first, Expr::Lit(_))) || self.is_context(first)
            }
            _ => true,
        }
    }

    /// A context, by its type or by the name that contexts have.
    fn is_context(&self, expression: &Expr) -> bool {
        match expression {
            Expr::MethodCall(call) => self.is_context(&call.receiver),
            Expr::Reference(inner) => self.is_context(&inner.expr),
            Expr::Paren(inner) => self.is_context(&inner.expr),
            _ => {
                matches!(self.infer(expression), Ty::Context | Ty::Fresh)
                    || name_of(expression)
                        .is_some_and(|name| ["cx", "ctx", "context"].contains(&name.as_str()))
            }
        }
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
        self.task_argument(task);
    }

    /// Walks what is submitted: the closure in it runs as a task.
    fn task_argument(&mut self, argument: &Expr) {
        match argument {
            Expr::Closure(closure) => {
                self.check_task_closure(closure);
                self.task_closure(closure);
            }
            Expr::Paren(inner) => self.task_argument(&inner.expr),
            Expr::Group(inner) => self.task_argument(&inner.expr),
            Expr::Reference(inner) => self.task_argument(&inner.expr),
            Expr::Call(call) if closure_in(argument).is_some() => {
                self.visit_expr(&call.func);
                call.args.iter().for_each(|inner| self.task_argument(inner));
            }
            // `{ let group = group.clone(); move |cx| … }`
            Expr::Block(block) if block.label.is_none() => self.scoped(|checker| {
                for statement in &block.block.stmts {
                    match statement {
                        Stmt::Expr(last, None) => checker.task_argument(last),
                        statement => checker.visit_stmt(statement),
                    }
                }
            }),
            _ => {
                self.task_by_name(argument);
                self.visit_expr(argument);
            }
        }
    }

    pub(super) fn task_closure(&mut self, closure: &syn::ExprClosure) {
        self.task_depth += 1;
        let outer = std::mem::replace(&mut self.in_task, true);
        self.closure(closure, &Ty::Context);
        self.in_task = outer;
        self.task_depth -= 1;
    }
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

//! Tasks that are submitted by name: a function of the file, or a closure bound before.
//!
//! Whether a name is a task is known only at the submit, when the receiver is known. So what may
//! turn out to be one is kept with the scope it was written in, and walked as a task then.

use std::collections::{HashMap, HashSet};

use syn::Expr;
use syn::visit::{self, Visit};

use super::Checker;
use super::handlers::is_handler_method;
use super::tasks::is_submit_name;
use crate::infer::Ty;
use crate::names::types::plain;
use crate::names::{ModuleId, Names};

/// A function that may be submitted by its name.
pub(super) struct KeptFunction {
    item: syn::ItemFn,
    module: ModuleId,
    blocks: Vec<Names>,
}

/// A closure that may be submitted by its name, with the scope around it.
pub(super) struct KeptClosure {
    closure: syn::ExprClosure,
    variables: Vec<HashMap<String, Ty>>,
    task_depth: usize,
    in_task: bool,
}

impl Checker<'_> {
    pub(super) fn keep_function(&mut self, item: &syn::ItemFn) {
        let name = plain(&item.sig.ident);
        if self.file_names.submitted.contains(&name) {
            let (module, blocks) = (self.module, self.blocks.clone());
            self.kept_functions.push((name, KeptFunction { item: item.clone(), module, blocks }));
        }
    }

    pub(super) fn keep_closure(&mut self, name: String, closure: &syn::ExprClosure) {
        let kept = KeptClosure {
            closure: closure.clone(),
            variables: self.variables.clone(),
            task_depth: self.task_depth,
            in_task: self.in_task,
        };
        self.kept_closures.insert(name, kept);
    }

    /// The task of a submit is a name.
    pub(super) fn task_by_name(&mut self, task: &Expr) {
        let Some(name) = named(task) else { return };
        let Some(kept) = self.kept_closures.remove(&name) else {
            self.submitted_functions.insert(name);
            return;
        };
        let variables = std::mem::replace(&mut self.variables, kept.variables);
        let task_depth = std::mem::replace(&mut self.task_depth, kept.task_depth);
        let in_task = std::mem::replace(&mut self.in_task, kept.in_task);
        self.check_task_closure(&kept.closure);
        self.task_closure(&kept.closure);
        self.in_task = in_task;
        self.task_depth = task_depth;
        self.variables = variables;
    }

    /// Walks the functions that turned out to be tasks; these may submit more of them.
    pub(super) fn walk_submitted(&mut self) {
        loop {
            let is_task =
                |(name, _): &(String, KeptFunction)| self.submitted_functions.contains(name);
            let Some(at) = self.kept_functions.iter().position(is_task) else {
                return;
            };
            let (_, kept) = self.kept_functions.swap_remove(at);
            self.module = kept.module;
            self.blocks = kept.blocks;
            self.check_task_function(&kept.item);
            self.function(&kept.item.sig, &kept.item.block, true);
        }
    }
}

/// Names that stand where a task or a handler would, whatever they are given to.
#[derive(Default)]
pub(super) struct TaskNames {
    pub(super) submitted: HashSet<String>,
    pub(super) handled: HashSet<String>,
}

/// Collects the names from what `walk` visits. They are needed before the walk: a closure is
/// bound before it is submitted.
pub(super) fn task_names(walk: impl FnOnce(&mut TaskNames)) -> TaskNames {
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

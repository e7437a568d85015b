//! Blocks, functions and closures: what each brings into scope before its code is walked.

use std::collections::HashMap;

use syn::visit::Visit as _;
use syn::{Expr, FnArg, Stmt};

use super::Checker;
use super::deferred::task_names;
use crate::fragments::Fragment;
use crate::infer::Ty;
use crate::known;
use crate::names::items::{add_item, facts_of, generics, methods_of_impl};
use crate::names::resolve::Target;
use crate::names::types::{TypeExpr, plain};
use crate::names::{ModuleId, Name, Names, PathRef, TypeFacts};

impl Checker<'_> {
    pub(super) fn fragments(&mut self, found: Vec<Fragment>) {
        for fragment in found {
            match fragment {
                Fragment::Expression(expression) => {
                    self.check_discarded_assign(&expression);
                    self.visit_expr(&expression);
                }
                Fragment::Statements(statements) => self.statements(&statements),
            }
        }
    }

    pub(super) fn statements(&mut self, statements: &[Stmt]) {
        let mut names = Names::default();
        for statement in statements {
            if let Stmt::Item(item) = statement {
                add_item(&mut names, item);
                self.note_block_type(item);
                if let syn::Item::Mod(item) = item
                    && let Some(module) = self.block_module(item)
                {
                    names.add(plain(&item.ident), Name::Module(module));
                }
            }
        }
        self.with_names(names, |checker| {
            checker.scoped(|checker| statements.iter().for_each(|s| checker.visit_stmt(s)));
        });
    }

    /// The module that a function has for itself.
    pub(super) fn block_module(&self, item: &syn::ItemMod) -> Option<ModuleId> {
        let start = item.ident.span().start();
        self.index.block_modules.get(&(self.file, start.line, start.column)).copied()
    }

    fn note_block_type(&mut self, item: &syn::Item) {
        let (name, facts) = match item {
            syn::Item::Impl(block) => match TypeExpr::of(&block.self_ty) {
                TypeExpr::Path(PathRef { segments, .. }, _) if segments.len() == 1 => {
                    let methods = methods_of_impl(block).into_iter().collect();
                    (segments.concat(), TypeFacts { methods, ..TypeFacts::default() })
                }
                _ => return,
            },
            item => match facts_of(item) {
                Some(facts) => facts,
                None => return,
            },
        };
        self.block_types.entry(name).or_default().extend(facts);
    }

    /// Runs `walk` without what surrounds it: an item inside a function sees none of it.
    pub(super) fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let variables = std::mem::replace(&mut self.variables, vec![HashMap::new()]);
        let submitted = std::mem::take(&mut self.submitted);
        let kept_closures = std::mem::take(&mut self.kept_closures);
        let handled = std::mem::take(&mut self.handled);
        let depth = std::mem::take(&mut self.task_depth);
        let in_task = std::mem::take(&mut self.in_task);
        let has_context = std::mem::take(&mut self.has_context);
        let returns = std::mem::replace(&mut self.returns, Ty::Unknown);
        walk(self);
        self.returns = returns;
        self.in_task = in_task;
        self.has_context = has_context;
        self.task_depth = depth;
        self.handled = handled;
        self.submitted = submitted;
        self.kept_closures = kept_closures;
        self.variables = variables;
    }

    pub(super) fn function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        is_task: bool,
    ) {
        self.with_names(generics(&signature.generics), |checker| {
            checker.apart(|checker| {
                let names = task_names(|visitor| visitor.visit_block(block));
                checker.submitted = names.submitted;
                checker.handled = names.handled;
                checker.task_depth = usize::from(is_task);
                for input in &signature.inputs {
                    checker.parameter(input);
                }
                let written = checker.type_of(&TypeExpr::of_return(&signature.output));
                checker.check_expected_block(block, &written);
                checker.returns = written;
                checker.visit_block(block);
            });
        });
    }

    fn parameter(&mut self, input: &FnArg) {
        match input {
            FnArg::Receiver(_) => {
                let own = self.self_type.clone();
                if let Ty::Local(module, name) = &own {
                    self.has_context |= self.field_types(*module, name).contains(&Ty::Context);
                }
                self.declare("self".to_owned(), own);
            }
            FnArg::Typed(typed) => {
                let ty = self.type_of(&TypeExpr::of(&typed.ty));
                self.has_context |= ty == Ty::Context;
                self.bind(&typed.pat, &ty);
            }
        }
    }

    /// Walks a closure whose parameters are of the given type.
    pub(super) fn closure(&mut self, closure: &syn::ExprClosure, given: &Ty) {
        self.scoped(|checker| {
            closure.inputs.iter().for_each(|input| checker.bind(input, given));
            let outer = std::mem::replace(&mut checker.returns, Ty::Unknown);
            let had_context = checker.has_context;
            checker.has_context |= checker.last_scope_has(&Ty::Context);
            checker.visit_expr(&closure.body);
            checker.has_context = had_context;
            checker.returns = outer;
        });
    }

    /// What the closures among a method's arguments are called with.
    pub(super) fn handed_to_closures(&self, call: &syn::ExprMethodCall) -> Ty {
        let method = plain(&call.method);
        let has_closure = call.args.iter().any(|argument| matches!(argument, Expr::Closure(_)));
        if !has_closure {
            return Ty::Unknown;
        }
        let receiver = self.infer(&call.receiver);
        match receiver {
            // rayon hands the scope on to what it spawns.
            Ty::Spawner if method.starts_with("spawn") || method.contains("scope") => Ty::Spawner,
            _ if known::hands_over(&method) => receiver,
            _ => Ty::Unknown,
        }
    }

    pub(super) fn is_scope(&self, path: &syn::ExprPath) -> bool {
        let targets = self.targets(&PathRef::of(&path.path));
        targets.iter().any(|target| matches!(target, Target::Extern(path) if known::is_scope(path)))
    }
}

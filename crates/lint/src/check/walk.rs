//! The visitor: opens and closes scopes, skips test code, enters macros, and asks the rules.

use syn::visit::{self, Visit};
use syn::{Expr, Pat, Stmt};

use super::attributes::{of_expression, of_item};
use super::{Checker, tasks};
use crate::fragments::{self};
use crate::infer::Ty;
use crate::names::items::generics;
use crate::names::types::{TypeExpr, plain};

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if self.is_test(of_item(item)) {
            return;
        }
        match item {
            syn::Item::Verbatim(tokens) => self.fragments(fragments::of_verbatim(tokens.clone())),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else {
            return;
        };
        let inner = self.block_module(item);
        let Some(module) = inner.or_else(|| self.index.child(self.module, &plain(&item.ident)))
        else {
            return;
        };
        let outer = std::mem::replace(&mut self.module, module);
        let blocks = std::mem::take(&mut self.blocks);
        self.apart(|checker| items.iter().for_each(|item| checker.visit_item(item)));
        self.blocks = blocks;
        self.module = outer;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.check_derived_default(item);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        let ty = self.type_of(&TypeExpr::of(&item.ty));
        self.check_expected(&item.expr, &ty);
        self.check_static(item, &ty);
        visit::visit_item_static(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let names = generics(&item.generics);
        self.with_names(names, |checker| {
            let self_type = checker.type_of(&TypeExpr::of(&item.self_ty));
            let outer_type = std::mem::replace(&mut checker.self_type, self_type);
            let handler = checker.handler_trait(item);
            let outer_handler = std::mem::replace(&mut checker.handler_impl, handler);
            item.items.iter().for_each(|item| checker.visit_impl_item(item));
            checker.handler_impl = outer_handler;
            checker.self_type = outer_type;
        });
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let own = Ty::Local(self.module, plain(&item.ident));
        let outer = std::mem::replace(&mut self.self_type, own);
        let names = generics(&item.generics);
        self.with_names(names, |checker| {
            item.items.iter().for_each(|item| checker.visit_trait_item(item));
        });
        self.self_type = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.keep_function(item);
        let is_task = self.is_handler_function(&item.attrs);
        self.function(&item.sig, &item.block, is_task);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !self.is_test(&item.attrs) {
            let is_task = self.is_handler_function(&item.attrs)
                || self.handler_impl.is_some_and(|names| names.iter().any(|n| item.sig.ident == n));
            self.function(&item.sig, &item.block, is_task);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default
            && !self.is_test(&item.attrs)
        {
            self.function(&item.sig, block, false);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.statements(&block.stmts);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let skipped = match statement {
            Stmt::Local(local) => self.is_test(&local.attrs),
            Stmt::Macro(call) => self.is_test(&call.attrs),
            Stmt::Expr(expression, _) => self.is_test(of_expression(expression)),
            Stmt::Item(_) => false,
        };
        if skipped {
            return;
        }
        self.check_discarded(statement);
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let Some(init) = &local.init else {
            return self.bind(&local.pat, &Ty::Unknown);
        };
        match (name_in(&local.pat), tasks::closure_in(&init.expr)) {
            (Some(name), Some(closure)) if self.handled.contains(&name) => {
                self.task_closure(closure);
            }
            (Some(name), Some(closure)) if self.submitted.contains(&name) => {
                self.keep_closure(name, closure);
                self.visit_expr(&init.expr);
            }
            _ => self.visit_expr(&init.expr),
        }
        if let Some((_, otherwise)) = &init.diverge {
            self.visit_expr(otherwise);
        }
        let ty = self.infer(&init.expr);
        let Pat::Type(typed) = &local.pat else {
            return self.bind(&local.pat, &ty);
        };
        let written = self.type_of(&TypeExpr::of(&typed.ty));
        self.check_expected(&init.expr, &written);
        if written == Ty::Context && self.is_fresh_value(&init.expr) {
            self.bind(&typed.pat, &Ty::Fresh);
        } else {
            self.bind(&local.pat, &ty);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Verbatim(tokens) => self.fragments(fragments::of_verbatim(tokens.clone())),
            _ => visit::visit_expr(self, expression),
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.check_path(path);
        self.check_wrapped_default(path);
        if let Some(last) = path.path.segments.last()
            && let syn::PathArguments::AngleBracketed(of) = &last.arguments
            && last.ident == "collect"
        {
            self.check_collected(last.ident.span(), of);
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        self.check_literal(literal);
        visit::visit_expr_struct(self, literal);
    }

    fn visit_expr_return(&mut self, end: &'ast syn::ExprReturn) {
        if let Some(value) = &end.expr {
            let expected = self.returns.clone();
            self.check_expected(value, &expected);
        }
        visit::visit_expr_return(self, end);
    }

    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        let outer = std::mem::replace(&mut self.returns, Ty::Unknown);
        visit::visit_expr_async(self, block);
        self.returns = outer;
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.check_leak_call(call);
        self.check_bound(call);
        self.check_constructed(call);
        self.check_spawn_call(call);
        if let Some(submit) = self.submit_by_path(call) {
            return self.submit(&submit);
        }
        if !self.is_idle_argument(call) {
            self.visit_expr(&call.func);
        }
        let scope = matches!(&*call.func, Expr::Path(path) if self.is_scope(path));
        for argument in &call.args {
            match argument {
                Expr::Closure(closure) if scope => self.closure(closure, &Ty::Spawner),
                _ => self.visit_expr(argument),
            }
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.check_spawn_method(call);
        self.check_permit_method(call);
        self.check_waiting(call);
        if let (true, Some(of)) = (call.method == "collect", &call.turbofish) {
            self.check_collected(call.method.span(), of);
        }
        if let Some(submit) = self.submit_by_method(call) {
            return self.submit(&submit);
        }
        self.visit_expr(&call.receiver);
        let handler = self.registers_handler(call);
        let handed = self.handed_to_closures(call);
        for argument in &call.args {
            match argument {
                Expr::Closure(closure) if handler => self.task_closure(closure),
                Expr::Closure(closure) => self.closure(closure, &handed),
                _ => self.visit_expr(argument),
            }
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.closure(closure, &Ty::Unknown);
    }

    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        visit::visit_expr_assign(self, assign);
        let expected = self.infer(&assign.left);
        self.check_expected(&assign.right, &expected);
        // `let handle; … handle = Handle::current();`
        if let Expr::Path(path) = &*assign.left
            && let Some(name) = path.path.get_ident().map(plain)
            && matches!(expected, Ty::Unknown | Ty::Context | Ty::Fresh)
            && self.variable(&name).is_some()
        {
            let ty = self.infer(&assign.right);
            let changes = expected == Ty::Unknown || matches!(ty, Ty::Context | Ty::Fresh);
            let known = self.variables.iter_mut().rev().find_map(|s| s.get_mut(&name));
            if let Some(known) = known.filter(|_| changes) {
                *known = ty;
            }
        }
    }

    fn visit_expr_let(&mut self, condition: &'ast syn::ExprLet) {
        self.visit_expr(&condition.expr);
        let ty = self.infer(&condition.expr);
        self.bind(&condition.pat, &ty);
    }

    fn visit_expr_if(&mut self, branches: &'ast syn::ExprIf) {
        self.check_idle_branch(&branches.cond, &branches.then_branch);
        self.scoped(|checker| {
            checker.visit_expr(&branches.cond);
            checker.visit_block(&branches.then_branch);
        });
        if let Some((_, otherwise)) = &branches.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_while(&mut self, repeat: &'ast syn::ExprWhile) {
        self.check_idle_branch(&repeat.cond, &repeat.body);
        self.scoped(|checker| visit::visit_expr_while(checker, repeat));
    }

    fn visit_expr_for_loop(&mut self, repeat: &'ast syn::ExprForLoop) {
        self.visit_expr(&repeat.expr);
        let ty = self.infer(&repeat.expr);
        self.scoped(|checker| {
            checker.bind(&repeat.pat, &ty);
            checker.visit_block(&repeat.body);
        });
    }

    fn visit_expr_match(&mut self, choice: &'ast syn::ExprMatch) {
        self.check_idle_arms(choice);
        self.visit_expr(&choice.expr);
        let ty = self.infer(&choice.expr);
        for arm in &choice.arms {
            if self.is_test(&arm.attrs) {
                continue;
            }
            self.scoped(|checker| {
                checker.bind(&arm.pat, &ty);
                visit::visit_arm(checker, arm);
            });
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !self.is_test(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let tokens = call.tokens.clone();
        let found = if call.path.is_ident("macro_rules") {
            fragments::of_rules(tokens)
        } else {
            fragments::of_macro(tokens)
        };
        self.fragments(found);
    }

    // Attributes hold no code that runs.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The one variable that a pattern binds, if it is no more than that.
fn name_in(pattern: &Pat) -> Option<String> {
    match pattern {
        Pat::Ident(name) => Some(plain(&name.ident)),
        Pat::Type(inner) => name_in(&inner.pat),
        _ => None,
    }
}

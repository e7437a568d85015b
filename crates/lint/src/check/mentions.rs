//! Whether code uses a variable at all.
//!
//! `let _ = cx;`, `_ = cx;`, `drop(cx);` and `let other = cx;` with an `other` that nobody uses are
//! ways to silence a warning, not uses. A closure or `let` that gives the name to something else
//! hides it.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, Pat, Stmt};

use crate::names::types::plain;

pub(super) fn mentions(name: &str, body: &Expr) -> bool {
    let mut search = Search { name, found: false };
    search.visit_expr(body);
    search.found
}

pub(super) fn mentions_in_block(name: &str, body: &syn::Block) -> bool {
    let mut search = Search { name, found: false };
    search.visit_block(body);
    search.found
}

struct Search<'a> {
    name: &'a str,
    found: bool,
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        for (at, statement) in block.stmts.iter().enumerate() {
            if self.is_silencing(statement) {
                continue;
            }
            if let Some(other) = self.renamed(statement) {
                let mut search = Search { name: &other, found: false };
                let rest = block.stmts[at + 1..].to_vec();
                search.visit_block(&syn::Block { brace_token: block.brace_token, stmts: rest });
                self.found |= search.found;
                continue;
            }
            self.visit_stmt(statement);
            // From here on the name is another variable.
            if let Stmt::Local(local) = statement
                && self.binds(&local.pat)
            {
                return;
            }
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.found |= path.path.get_ident().is_some_and(|ident| plain(ident) == self.name);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        if !closure.inputs.iter().any(|input| self.binds(input)) {
            self.visit_expr(&closure.body);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.found |= self.in_tokens(call.tokens.clone());
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

impl Search<'_> {
    fn is_name(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path.path.get_ident().is_some_and(|i| plain(i) == self.name),
            Expr::Reference(inner) => self.is_name(&inner.expr),
            Expr::Paren(inner) => self.is_name(&inner.expr),
            _ => false,
        }
    }

    fn is_silencing(&self, statement: &Stmt) -> bool {
        match statement {
            Stmt::Local(local) => match &local.init {
                Some(init) => matches!(local.pat, Pat::Wild(_)) && self.is_name(&init.expr),
                None => false,
            },
            Stmt::Expr(Expr::Assign(assign), _) => {
                matches!(&*assign.left, Expr::Infer(_)) && self.is_name(&assign.right)
            }
            Stmt::Expr(Expr::Call(call), _) => {
                let drops = matches!(&*call.func, Expr::Path(path)
                    if path.path.segments.last().is_some_and(|last| last.ident == "drop"));
                drops && call.args.iter().all(|argument| self.is_name(argument))
            }
            Stmt::Expr(expression, Some(_)) => self.is_name(expression),
            _ => false,
        }
    }

    /// The new name in `let other = cx;`.
    fn renamed(&self, statement: &Stmt) -> Option<String> {
        let Stmt::Local(local) = statement else {
            return None;
        };
        let moved = local.init.as_ref().is_some_and(|init| self.is_name(&init.expr));
        match &local.pat {
            Pat::Ident(name) if moved && plain(&name.ident) != self.name => {
                Some(plain(&name.ident))
            }
            _ => None,
        }
    }

    fn binds(&self, pattern: &Pat) -> bool {
        struct Names<'a>(&'a str, bool);
        impl<'ast> Visit<'ast> for Names<'_> {
            fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
                self.1 |= plain(&pattern.ident) == self.0;
                visit::visit_pat_ident(self, pattern);
            }
        }
        let mut names = Names(self.name, false);
        names.visit_pat(pattern);
        names.1
    }

    /// The name itself, or `{name}` in a format string.
    fn in_tokens(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => plain(&ident) == self.name,
            TokenTree::Group(group) => self.in_tokens(group.stream()),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let opened = format!("{{{}", self.name);
                let ends = |(at, _)| text[at + opened.len()..].starts_with(['}', ':']);
                text.match_indices(&opened).any(ends)
            }
            TokenTree::Punct(_) => false,
        })
    }
}

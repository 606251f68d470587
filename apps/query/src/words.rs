//! Translates statements to Spark's dialect, with the meaning that they have in DataFusion.
//!
//! **Why.** Some expressions mean different things in the two engines: in Spark, `0.1` is a decimal number, nulls are
//! sorted to the other end, and `7 / 2` is 3.5.
//!
//! **How.** The parsed statement is made more explicit where that makes both agree. A quotient of integers, whose types
//! only the plan has, is refused.
//!
//! **Limits.** Functions keep their names; Spark reports those that it lacks.
//!
//! **Example.** `ORDER BY p99_ms DESC` becomes `ORDER BY p99_ms DESC NULLS FIRST`.

use std::ops::ControlFlow;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr as Planned, ExprSchemable as _, LogicalPlan, Operator};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DateTimeField, Expr, OrderByExpr, OrderByKind, Query, Statement as Parsed, Value, ValueWithSpan, VisitMut as _,
    VisitorMut, WindowType,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// Returns the statement in Spark's dialect. A view becomes temporary, as in DataFusion.
pub(crate) fn for_spark(statement: &Statement) -> String {
    let Statement::Statement(parsed) = statement else { return statement.to_string() };
    let mut parsed = parsed.clone();
    let _: ControlFlow<()> = parsed.visit(&mut Spark);

    if let Parsed::CreateView(view) = parsed.as_mut() {
        (view.temporary, view.or_replace) = (true, true);
    }
    parsed.to_string()
}

struct Spark;

impl VisitorMut for Spark {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(list) = &mut order.kind
        {
            place_nulls(list);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && let Some(WindowType::WindowSpec(window)) = &mut function.over
        {
            place_nulls(&mut window.order_by);
        }
        // Spark's `extract` has no epoch.
        if let Expr::Extract { field: DateTimeField::Epoch, expr: time, .. } = expression
            && let Ok(seconds) = parsed(&format!("CAST({time} AS DOUBLE)"))
        {
            *expression = seconds;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        // With an exponent, a number is a float in both engines.
        if let Value::Number(digits, _) = &mut value.value
            && digits.contains('.')
            && !digits.contains(['e', 'E'])
        {
            digits.push_str("e0");
        }
        // In a text of Spark a backslash begins an escape; here it is a letter.
        if let Value::SingleQuotedString(text) = &mut value.value {
            *text = text.replace('\\', "\\\\").replace('\'', "\\'");
        }
        ControlFlow::Continue(())
    }
}

/// Parses an expression.
fn parsed(sql: &str) -> std::result::Result<Expr, ParserError> {
    Parser::new(&GenericDialect {}).try_with_sql(sql)?.parse_expr()
}

/// Makes DataFusion's order of nulls explicit: as if they were larger than all other values.
fn place_nulls(list: &mut [OrderByExpr]) {
    for expression in list {
        let is_descending = expression.options.asc == Some(false);
        expression.options.nulls_first.get_or_insert(is_descending);
    }
}

/// Returns a quotient of two integers in a plan, if there is one.
pub(crate) fn integer_quotient(plan: &LogicalPlan) -> Result<Option<String>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }

        let is_integer = |part: &Planned| part.get_type(&schema).is_ok_and(|it| it.is_integer());

        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Planned::BinaryExpr(it) = part
                    && it.op == Operator::Divide
                    && is_integer(&it.left)
                    && is_integer(&it.right)
                {
                    found = Some(part.to_string());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;

    Ok(found)
}

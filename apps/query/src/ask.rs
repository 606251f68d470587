//! Finds the statements of a question, and runs them.
//!
//! **Why.** A question may be a file, a statement or the name of a view.
//!
//! **How.** Statements run in order. A definition runs at once; a statement that gives rows is an answer, computed as
//! it is read.
//!
//! **Limits.** Statements that would write into the depot are refused, `COPY` included: `-o` writes answers.
//!
//! **Example.** `SET ...; CREATE VIEW changed AS ...; SELECT * FROM before_after`

use std::path::Path;

use datafusion::dataframe::DataFrame;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParser, Statement};

use crate::depot::{Depot, QUESTIONS};
use crate::failure::Failure;

/// Returns the statements of a question.
pub(crate) fn sql_of(question: &str, depot: &Depot) -> Result<String, Failure> {
    let path = Path::new(question);
    let is_word = question.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if question.ends_with(".sql") || (!is_word && path.is_file()) {
        return std::fs::read_to_string(path).map_err(|error| Failure::Input(format!("{question}: {error}")));
    }

    if !is_word {
        return Ok(question.to_owned());
    }

    if let Some(found) = QUESTIONS.iter().find(|it| it.name == question) {
        return Ok(format!("SELECT * FROM {question} ORDER BY {}", found.order));
    }

    match depot.session.table_exist(question) {
        Ok(true) => Ok(format!("SELECT * FROM {question}")),
        _ => Err(Failure::Input(format!(
            "{question}: expected a statement, a FILE.sql, or one of these names:\n{}",
            depot.contents().trim_end()
        ))),
    }
}

/// Returns the plan of a statement; an error if the statement would write.
pub(crate) async fn plan(depot: &Depot, statement: Statement) -> Result<LogicalPlan, Failure> {
    let plan = depot.session.state().statement_to_plan(statement).await.map_err(|error| depot.explain(error))?;
    SQLOptions::new().with_allow_dml(false).verify_plan(&plan)?;
    Ok(plan)
}

/// Runs statements. Returns the answers, which are computed as they are read.
pub(crate) async fn run(depot: &mut Depot, sql: &str) -> Result<Vec<DataFrame>, Failure> {
    let mut answers = Vec::new();
    for statement in DFParser::parse_sql(sql)? {
        depot.add_views().await;
        let plan = plan(depot, statement).await?;

        let defines = matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_));
        let frame = depot.session.execute_logical_plan(plan).await.map_err(|error| depot.explain(error))?;
        if !defines {
            answers.push(frame);
        }
    }
    Ok(answers)
}

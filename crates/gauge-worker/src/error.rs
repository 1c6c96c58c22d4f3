//! What the API answers when a request cannot be served.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gauge_client::ClientError;
use serde_json::json;

/// The kinds of errors of docs/worker-api.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request is wrong.
    BadRequest,
    /// The request comes from where none may come from.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The trial is in the wrong state for it.
    Conflict,
    /// The body is too long.
    TooLarge,
    /// The system under test refused or could not be reached.
    System,
    /// A fault of the worker itself.
    Internal,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Code::BadRequest => "bad_request",
            Code::Forbidden => "forbidden",
            Code::NotFound => "not_found",
            Code::Conflict => "conflict",
            Code::TooLarge => "too_large",
            Code::System => "system",
            Code::Internal => "internal",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Code::BadRequest => StatusCode::BAD_REQUEST,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Conflict => StatusCode::CONFLICT,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::System => StatusCode::BAD_GATEWAY,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// An error of the API, with the field that is to blame where one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Its kind.
    pub code: Code,
    /// What was wrong and what was expected, in a sentence.
    pub message: String,
    /// Path of the field, as `producers[0].rate_msgs_s`.
    pub field: Option<String>,
}

impl ApiError {
    fn plain(code: Code, message: impl Into<String>) -> ApiError {
        ApiError {
            code,
            message: message.into(),
            field: None,
        }
    }

    /// The request is wrong, and this field of it is to blame.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError {
            code: Code::BadRequest,
            message: message.into(),
            field: Some(field.into()),
        }
    }

    /// The request is wrong as a whole.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::BadRequest, message)
    }

    /// The request comes from where none may come from.
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::Forbidden, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::NotFound, message)
    }

    /// The trial is in the wrong state for it.
    pub fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::Conflict, message)
    }

    /// The body is too long.
    pub fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::TooLarge, message)
    }

    /// A fault of the worker itself.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::plain(Code::Internal, message)
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> ApiError {
        match error {
            ClientError::Input { field, message } => ApiError::field(field, message),
            ClientError::System(message) => ApiError::plain(Code::System, message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({"code": self.code.name(), "message": self.message});
        if let Some(field) = self.field {
            error["field"] = json!(field);
        }
        (self.code.status(), Json(json!({ "error": error }))).into_response()
    }
}

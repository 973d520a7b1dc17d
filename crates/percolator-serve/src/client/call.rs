//! Calls: what a client sends, and the pieces of what it is answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::connection::{Dialer, Link};
use super::error::ClientError;
use super::receive::Malformed;
use crate::flight::{FlightData, SERVICE};
use crate::grpc::{self, Code, Status, Unframer};

/// The most bytes of an answer that is not a stream of batches.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What a call sends: one message, and then acknowledgements, for as long as there is who makes them.
#[derive(Debug)]
pub(crate) struct CallBody {
    first: Option<Bytes>,
    acknowledged: Option<mpsc::UnboundedReceiver<u64>>,
}

impl CallBody {
    pub(crate) fn once(first: Bytes) -> Self {
        CallBody { first: Some(first), acknowledged: None }
    }

    pub(crate) fn exchange(first: Bytes, acknowledged: mpsc::UnboundedReceiver<u64>) -> Self {
        CallBody { first: Some(first), acknowledged: Some(acknowledged) }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        if let Some(first) = body.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(acknowledged) = &mut body.acknowledged else { return Poll::Ready(None) };
        let Some(mut number) = ready!(acknowledged.poll_recv(context)) else {
            body.acknowledged = None;
            return Poll::Ready(None);
        };
        // The last one says what those before it say.
        while let Ok(later) = acknowledged.try_recv() {
            number = later;
        }
        let message = FlightData {
            app_metadata: format!("{{\"acknowledged\": {number}}}").into(),
            ..FlightData::default()
        };
        Poll::Ready(Some(Ok(Frame::data(grpc::framed(&message)))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.acknowledged.is_none()
    }
}

/// What a server answers.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    dialer: Arc<Dialer>,
    body: Incoming,
    is_over: bool,
}

impl Dialer {
    fn request(&self, method: &str, body: CallBody) -> Request<CallBody> {
        let uri = Uri::builder()
            .scheme(if self.has_tls() { "https" } else { "http" })
            .authority(self.authority.clone())
            .path_and_query(format!("{SERVICE}{method}"))
            .build();
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.expect("its parts were parsed");
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        request
    }

    /// Asks for one message, on a connection of its own.
    pub(crate) async fn ask(
        self: Arc<Self>,
        method: &'static str,
        message: Bytes,
    ) -> Result<Bytes, ClientError> {
        let mut link = self.dial().await?;
        let mut answer = link.call(method, CallBody::once(message)).await?;
        let (mut unframer, mut bytes) = (Unframer::new(ANSWER_BYTES_MAX), 0);
        let mut found = None;
        while let Some(piece) = answer.next().await? {
            bytes += piece.len();
            if bytes > ANSWER_BYTES_MAX {
                let found = format!("an answer to {method} of more than {ANSWER_BYTES_MAX} bytes");
                return Err(self.malformed(Malformed(found)));
            }
            unframer.push(&piece);
            while let Some(message) =
                unframer.next().map_err(|status| self.malformed(Malformed(status.message)))?
            {
                found.get_or_insert(message);
            }
        }
        match found {
            Some(message) if !unframer.is_within() => Ok(message),
            _ => Err(self.malformed(Malformed(format!("no whole answer to {method}")))),
        }
    }
}

impl Link {
    /// Begins a call.
    pub(crate) async fn call(&mut self, method: &str, body: CallBody) -> Result<CallAnswer, ClientError> {
        let dialer = self.dialer.clone();
        let response = match self.sender.send_request(dialer.request(method, body)).await {
            Ok(response) => response,
            Err(error) => return Err(self.unanswered(error)),
        };
        let (head, body) = response.into_parts();
        match (head.status, Status::outcome(&head.headers)) {
            (StatusCode::OK, Some(Err(status))) => Err(dialer.refused(status)),
            (StatusCode::OK, outcome) => Ok(CallAnswer { dialer, body, is_over: outcome.is_some() }),
            // As proxies say it.
            (
                status @ (StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT),
                _,
            ) => Err(dialer.refused(Status::new(Code::Unavailable, format!("by HTTP: {status}")))),
            (status, _) => Err(dialer.malformed(Malformed(format!("the status {status} of HTTP")))),
        }
    }
}

impl CallAnswer {
    /// The next piece, or `None` after the last one, if the call ended well.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.is_over {
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(self.dialer.broken(error)),
                None => return Err(self.dialer.cut_off()),
            };
            let frame = match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => frame,
            };
            if let Ok(trailers) = frame.into_trailers() {
                self.is_over = true;
                match Status::outcome(&trailers) {
                    Some(Ok(())) => {}
                    Some(Err(status)) => return Err(self.dialer.refused(status)),
                    None => return Err(self.dialer.cut_off()),
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(body: &mut CallBody) -> Poll<Option<Bytes>> {
        let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        frame.map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
    }

    #[test]
    fn the_last_acknowledgement_is_sent_before_the_end() {
        let (acknowledge, acknowledged) = mpsc::unbounded_channel();
        let mut body = CallBody::exchange(Bytes::from_static(b"first"), acknowledged);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Bytes::from_static(b"first"))));
        assert_eq!(poll(&mut body), Poll::Pending);
        for number in [3, 4] {
            acknowledge.send(number).unwrap();
        }
        drop(acknowledge);
        let message = FlightData { app_metadata: "{\"acknowledged\": 4}".into(), ..FlightData::default() };
        assert_eq!(poll(&mut body), Poll::Ready(Some(grpc::framed(&message))));
        assert!(!body.is_end_stream());
        assert_eq!((poll(&mut body), body.is_end_stream()), (Poll::Ready(None), true));
        let mut body = CallBody::once(Bytes::new());
        assert_eq!((poll(&mut body), body.is_end_stream()), (Poll::Ready(Some(Bytes::new())), true));
    }
}

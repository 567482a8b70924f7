//! Addresses to stores and credentials.
//!
//! Credentials come from the places of the cloud's own tools. Without any, the request is
//! anonymous; only if denied does it use the machine's role. A public object needs no metadata
//! service.

use crate::profile::Profile;
use crate::{Error, Options};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// An object and one way to request it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    /// Credentials used, or places searched.
    pub(crate) credentials: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Login {
    /// Credentials found.
    Found,
    Nobody,
    /// The machine's role in its cloud.
    Machine,
}

/// Ways to request the object, in order of attempts.
pub(crate) fn places(address: &str, options: &Options) -> Result<Vec<Place>, Error> {
    let url = Url::parse(address).map_err(|error| Error::Address { problem: error.to_string() })?;
    if matches!(url.scheme(), "http" | "https") {
        return Ok(vec![over_http(&url)?]);
    }
    let cloud = CLOUDS
        .iter()
        .find(|cloud| cloud.scheme == url.scheme())
        .ok_or_else(|| Error::Address { problem: format!("unknown scheme {}", url.scheme()) })?;
    let bucket = url.host_str().filter(|host| !host.is_empty());
    let bucket = bucket.ok_or_else(|| Error::Address { problem: "no bucket is named".into() })?;
    let path =
        Path::from_url_path(url.path()).map_err(|error| Error::Address { problem: error.to_string() })?;
    if path.as_ref().is_empty() {
        return Err(Error::Address { problem: "no object is named".into() });
    }
    let is_set = |name: &&&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let found = cloud.variables.iter().find(is_set).map(|name| format!("${name}"));
    let found = found.or_else(|| (cloud.file)());
    let credentials = match &found {
        Some(found) => format!("credentials of {found} were used"),
        None => {
            let variables =
                cloud.variables.iter().map(|name| format!("${name}")).collect::<Vec<_>>().join(", ");
            format!("no credentials were found in {variables}{}; asked anonymously", cloud.also)
        }
    };
    let has_no_metadata = env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|is| is == "true");
    let logins: &[Login] = match found {
        Some(_) => &[Login::Found],
        None if has_no_metadata => &[Login::Nobody],
        None => &[Login::Nobody, Login::Machine],
    };
    let place = |login: &Login| {
        let store = (cloud.build)(bucket, *login, options.endpoint.as_deref());
        let store = store.map_err(|error| Error::Settings { problem: error.to_string() })?;
        Ok(Place { store, path: path.clone(), credentials: credentials.clone() })
    };
    logins.iter().map(place).collect()
}

fn over_http(url: &Url) -> Result<Place, Error> {
    let store = HttpBuilder::new()
        .with_url(url.as_str())
        .with_client_options(client(true))
        .with_retry(retries())
        .build()
        .map_err(|error| Error::Address { problem: error.to_string() })?;
    let credentials = "an address of HTTP is asked for without credentials, but those in the address".into();
    Ok(Place { store: Arc::new(store), path: Path::default(), credentials })
}

type Built = object_store::Result<Arc<dyn ObjectStore>>;

/// A cloud and its environment variables.
struct Cloud {
    scheme: &'static str,
    variables: &'static [&'static str],
    /// Credentials file.
    file: fn() -> Option<String>,
    /// Other searched places, for a message.
    also: &'static str,
    build: fn(bucket: &str, login: Login, endpoint: Option<&str>) -> Built,
}

/// Written by `gcloud auth application-default login`.
const WELL_KNOWN: &str = ".config/gcloud/application_default_credentials.json";

const AWS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

const CLOUDS: &[Cloud] = &[
    Cloud {
        scheme: "s3",
        variables: AWS,
        file: || {
            Some(Profile::read()).filter(Profile::has_keys).map(|profile| format!("profile {}", profile.name))
        },
        also: " and ~/.aws/credentials",
        build: amazon,
    },
    Cloud {
        scheme: "gs",
        variables: &[
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
        ],
        file: || {
            env::var_os("HOME")
                .map(|home| PathBuf::from(home).join(WELL_KNOWN))
                .filter(|path| path.exists())
                .map(|_| format!("~/{WELL_KNOWN}"))
        },
        also: " and ~/.config/gcloud",
        build: google,
    },
    Cloud {
        scheme: "az",
        variables: &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE",
        ],
        file: || None,
        also: "",
        build: azure,
    },
];

fn amazon(bucket: &str, login: Login, endpoint: Option<&str>) -> Built {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    if let Some(endpoint) = endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let profile = Profile::read();
    let settings = [
        (AmazonS3ConfigKey::AccessKeyId, profile.key),
        (AmazonS3ConfigKey::SecretAccessKey, profile.secret),
        (AmazonS3ConfigKey::Token, profile.token),
    ];
    // All keys must come from one place.
    if login == Login::Found && !AWS.iter().any(|name| env::var_os(name).is_some()) {
        for (key, value) in settings {
            builder = value.into_iter().fold(builder, |builder, value| builder.with_config(key, value));
        }
    }
    if let Some(region) = profile.region
        && builder.get_config_value(&AmazonS3ConfigKey::Region).is_none()
        && builder.get_config_value(&AmazonS3ConfigKey::DefaultRegion).is_none()
    {
        builder = builder.with_region(region);
    }
    let store = builder
        .with_skip_signature(login == Login::Nobody)
        .with_client_options(client(true))
        .with_retry(retries_of(login))
        .build()?;
    Ok(Arc::new(store))
}

fn google(bucket: &str, login: Login, endpoint: Option<&str>) -> Built {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    if let Some(endpoint) = endpoint {
        builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint);
    }
    let store = builder
        .with_skip_signature(login == Login::Nobody)
        .with_client_options(client(true))
        .with_retry(retries_of(login))
        .build()?;
    Ok(Arc::new(store))
}

fn azure(container: &str, login: Login, endpoint: Option<&str>) -> Built {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    let store = builder
        .with_skip_signature(login == Login::Nobody)
        .with_client_options(client(true))
        .with_retry(retries_of(login))
        .build()?;
    Ok(Arc::new(store))
}

/// Slow requests may continue, stalled ones not.
fn client(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(allow_http)
        .with_timeout_disabled()
        .with_config(ClientConfigKey::ReadTimeout, "30 seconds")
        .with_user_agent(object_store::HeaderValue::from_static(concat!(
            "dentree/",
            env!("CARGO_PKG_VERSION")
        )))
}

/// Six tries in half a minute.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 5,
        retry_timeout: Duration::from_secs(30),
    }
}

/// A metadata service is asked once: most machines have none.
fn retries_of(login: Login) -> RetryConfig {
    let max_retries = if login == Login::Machine { 0 } else { retries().max_retries };
    RetryConfig { max_retries, ..retries() }
}

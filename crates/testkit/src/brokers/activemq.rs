//! ActiveMQ Classic, spoken to over STOMP. The scheduler is on: without it the broker silently
//! ignores a message's delay.
//!
//! Who says nothing is let in; who says a name must know its password, which is `secret`: `alice` may
//! do everything, and `bob` nothing.

use std::io;

use super::folder::Folder;
use super::plan::{Plan, Spec, free_ports, local, program};

const HOME: &str = "/usr/share/activemq";

/// The packaged logger is of the old kind and says nothing unless told where.
const LOGGING: &str = "\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %-5p %c: %m%n
";

pub(super) fn plan(folder: &Folder) -> io::Result<Plan> {
    let [stomp, openwire] = free_ports()?;
    let data = folder.make("data")?;
    let conf = folder.make("conf")?;
    let logging = folder.write("conf/log4j.properties", LOGGING)?;
    let settings = folder.write("conf/activemq.xml", &settings(stomp, openwire, &data))?;
    let server = Spec::new(program("java")?)
        .args(["-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"])
        .args([
            format!("-Dactivemq.home={HOME}"),
            format!("-Dactivemq.base={}", folder.path().display()),
            format!("-Dactivemq.conf={conf}"),
            format!("-Dactivemq.data={data}"),
            format!("-Djava.io.tmpdir={}", folder.path().display()),
            format!("-Dlog4j.configuration=file:{logging}"),
        ])
        .args(["-jar", &format!("{HOME}/bin/activemq.jar"), "start"])
        .args([format!("xbean:file:{settings}")])
        .env("HOME", folder.at(""));
    Ok(Plan {
        url: format!("stomp://127.0.0.1:{stomp}"),
        address: local(stomp),
        management_url: None,
        servers: vec![server],
    })
}

fn settings(stomp: u16, openwire: u16, data: &str) -> String {
    format!(
        r#"<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core
         http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="test{stomp}"
          useJmx="false" persistent="true" schedulerSupport="true" dataDirectory="{data}">
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="true">
        <users>
          <authenticationUser username="alice" password="secret" groups="users"/>
          <authenticationUser username="bob" password="secret" groups="nobodies"/>
        </users>
      </simpleAuthenticationPlugin>
      <authorizationPlugin>
        <map>
          <authorizationMap>
            <authorizationEntries>
              <authorizationEntry queue=">" read="anonymous,users" write="anonymous,users"
                                  admin="anonymous,users"/>
              <authorizationEntry topic=">" read="anonymous,users" write="anonymous,users"
                                  admin="anonymous,users"/>
            </authorizationEntries>
          </authorizationMap>
        </map>
      </authorizationPlugin>
    </plugins>
    <persistenceAdapter>
      <kahaDB directory="{data}/kahadb" journalMaxFileLength="4mb"/>
    </persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="64 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="512 mb"/></storeUsage>
        <tempUsage><tempUsage limit="64 mb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{openwire}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}"/>
    </transportConnectors>
  </broker>
</beans>
"#
    )
}

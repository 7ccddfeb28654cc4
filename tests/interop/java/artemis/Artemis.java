import java.nio.file.Path;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** An MQTT 5 broker for tests, Apache ActiveMQ Artemis. Its arguments are where it listens and a directory of its own. */
final class Artemis {
    private Artemis() {}

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[1]);
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setSecurityEnabled(false);
        configuration.setJournalType(JournalType.NIO); // the other one needs a library of the machine
        configuration.setJournalDirectory(directory.resolve("journal").toString());
        configuration.setBindingsDirectory(directory.resolve("bindings").toString());
        configuration.setLargeMessagesDirectory(directory.resolve("large").toString());
        configuration.setPagingDirectory(directory.resolve("paging").toString());
        configuration.setMaxDiskUsage(100); // else it takes nothing on a disk that is rather full
        configuration.addAcceptorConfiguration("mqtt", "tcp://" + arguments[0] + "?protocols=MQTT");
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfiguration(configuration);
        broker.start();
        Thread.currentThread().join();
    }
}

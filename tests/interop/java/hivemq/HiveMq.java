import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Files;
import java.nio.file.Path;

/** An MQTT 5 broker for tests, HiveMQ Community Edition. Its argument is a directory with {@code conf/config.xml}. */
final class HiveMq {
    private HiveMq() {}

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(directory.resolve("conf"))
            .withDataFolder(Files.createDirectories(directory.resolve("data")))
            .withExtensionsFolder(Files.createDirectories(directory.resolve("extensions")))
            .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        broker.start().join();
        Thread.currentThread().join();
    }
}

// An MQTT 5 broker for tests, Mochi, that keeps sessions, retained messages and what is on its way in a file.
package main

import (
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/bolt"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Mochi confirms a message that has user properties by a PUBACK with reason code 1, which MQTT 5 does not have there, and with
// the message's own properties. This makes a plain success of it: most clients cannot read the other.
type plainAcks struct {
	mqtt.HookBase
}

func (plainAcks) ID() string { return "plain-acks" }

func (plainAcks) Provides(event byte) bool { return event == mqtt.OnPacketEncode }

func (plainAcks) OnPacketEncode(_ *mqtt.Client, packet packets.Packet) packets.Packet {
	if packet.FixedHeader.Type == packets.Puback && packet.ReasonCode < 0x10 {
		packet.ReasonCode = 0
		packet.Properties = packets.Properties{}
	}
	return packet
}

// Its arguments: the address to listen on, a directory, and perhaps "as-it-is", which leaves the PUBACKs alone.
func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumMessageExpiryInterval = 0 // or messages without a time to live get one of a day
	server := mqtt.New(&mqtt.Options{Logger: logger, Capabilities: capabilities})
	check(server.AddHook(new(auth.AllowHook), nil))
	check(server.AddHook(new(bolt.Hook), &bolt.Options{Path: filepath.Join(os.Args[2], "mochi.db")}))
	if len(os.Args) < 4 || os.Args[3] != "as-it-is" {
		check(server.AddHook(new(plainAcks), nil))
	}
	check(server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: os.Args[1]})))
	check(server.Serve())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	check(server.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

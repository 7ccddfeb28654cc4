#!/bin/sh
# Makes what compose.yaml wants in ./secrets: a private certificate authority, what it signs, and passwords.
#
#   sudo ./make-secrets.sh                   # once; into ./secrets
#   sudo ./make-secrets.sh secrets veh1-b    # another time: a certificate for one more uEntity, signed by the same authority
#
# It makes what is missing, and leaves alone what is there.
#
# Root, because each key belongs to the user who runs in the container: 10001 the streamer, 1883 the broker. Nobody else can read
# it. Keep ca.key elsewhere once you are done: whoever has it can be anybody.
set -eu
umask 077

streamer=${STREAMER_USER:-10001:10001}
broker=${BROKER_USER:-1883:1883}
client=${CLIENT_USER:-0:0}
folder=${1:-secrets}
[ $# -eq 0 ] || shift

mkdir -p "$folder"
chmod 0755 "$folder" # its files protect themselves
cd "$folder"

new_key() {
    openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"
}

# sign NAME OWNER SUBJECT_ALT_NAMES: NAME.key and NAME.pem, for both ends of a link. The owner may read the key.
sign() {
    new_key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    {
        echo "basicConstraints = critical, CA:FALSE"
        echo "keyUsage = critical, digitalSignature"
        echo "extendedKeyUsage = serverAuth, clientAuth"
        echo "subjectAltName = $3"
    } >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile "$1.ext" -out "$1.pem" 2>/dev/null
    rm "$1.csr" "$1.ext"
    give "$2" "$1.key"
    chmod 0444 "$1.pem"
}

give() {
    chmod 0400 "$2"
    chown "$1" "$2"
}

if [ ! -e ca.pem ]; then
    new_key ca
    openssl req -x509 -new -key ca.key -subj "/CN=private CA" -days 3650 \
        -addext "basicConstraints = critical, CA:TRUE, pathlen:0" -addext "keyUsage = critical, keyCertSign, cRLSign" -out ca.pem
    chmod 0400 ca.key
    chmod 0444 ca.pem
fi

[ -e broker.pem ] || sign broker "$broker" "DNS:broker, DNS:localhost, IP:127.0.0.1"
[ -e streamer.pem ] || sign streamer "$streamer" "DNS:streamer, DNS:localhost, IP:127.0.0.1"
[ -e veh1.pem ] || sign veh1 "$client" "DNS:veh1" # for the uEntities of the vehicle, by the name that zenoh.json5 knows

# The broker has both, by user name; the streamer has its own. The third is for whoever is the backend.
if [ ! -e passwords ]; then
    openssl rand -hex 16 >mqtt-password
    openssl rand -hex 16 >backend-password
    printf 'gateway-veh1:%s\nbackend:%s\n' "$(cat mqtt-password)" "$(cat backend-password)" >passwords
    give "$streamer" mqtt-password
    give "$broker" passwords
fi

# What both streamers of compose.pair.yaml share.
if [ ! -e pair.key ]; then
    openssl rand -hex 32 >pair.key
    give "$streamer" pair.key
fi

for name; do
    sign "$name" "$client" "DNS:$name"
done

#!/bin/bash
# Java as the tests start it: without its optimising compiler, and with the classes of brokers from an archive. The first of each kind that
# is not killed makes its archive when it ends. STREAMGAUGE_TEST_JAVA is the program itself, STREAMGAUGE_TEST_CLASSES the directory of the
# archives. Java looks whether an archive is whole and holds the same classes, and does without it otherwise. It makes none
# of what an agent may have changed, and does not start at all where classes may come from a directory.
options=-XX:TieredStopAtLevel=1
main= path= previous= agent= directory=
for argument in "$@"; do
    case $previous in
    -cp | -classpath | --class-path) path=$argument ;;
    --add-opens | --add-exports | --add-modules) ;;
    *)
        case $argument in
        -javaagent:*) agent=yes ;;
        -*) ;;
        *)
            main=$argument
            break
            ;;
        esac
        ;;
    esac
    previous=$argument
done
IFS=: read -r -a places <<<"$path"
for place in "${places[@]}"; do
    if [ -d "$place" ]; then
        directory=yes
    fi
done
case $main in
kafka.Kafka | org.apache.pulsar.PulsarBrokerStarter | org.apache.pulsar.PulsarClusterMetadataSetup | org.apache.bookkeeper.server.Main | \
    org.apache.zookeeper.server.quorum.QuorumPeerMain)
    key=$(printf '%s\n' "$path" "$(stat -Lc '%n %Y' "$STREAMGAUGE_TEST_JAVA")" | cksum)
    archive=$STREAMGAUGE_TEST_CLASSES/$main-${key%% *}
    if [ -e "$archive.jsa" ]; then
        options+=" -XX:SharedArchiveFile=$archive.jsa -Xlog:cds*=off"
    elif [ -z "$agent$directory" ] && ! kill -0 "$(cat "$archive.made-by" 2>/dev/null)" 2>/dev/null; then
        echo $$ >"$archive.made-by"
        options+=" -XX:ArchiveClassesAtExit=$archive.jsa -Xlog:cds*=off"
    fi
    ;;
esac
export JAVA_TOOL_OPTIONS=$options
exec -a "$0" "$STREAMGAUGE_TEST_JAVA" "$@"

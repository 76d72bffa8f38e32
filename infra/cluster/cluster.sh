#!/bin/sh
# A standalone Spark cluster on this machine, without containers: a master and workers, on the loopback only.
#
#   infra/cluster/cluster.sh start [workers]   start a master and workers (default 1), print the connection
#   infra/cluster/cluster.sh status            which of them live
#   infra/cluster/cluster.sh stop              stop exactly those that start started
set -eu

home=$(cd "$(dirname "$0")/../.." && pwd)
folder="${SPILLWAY_BUILD:-$home/build}/cluster"
port="${SPARK_MASTER_PORT:-7077}"
cores="${WORKER_CORES:-1}"
memory="${WORKER_MEMORY:-2g}"
spark_class="$home/.venv/bin/spark-class"

if [ -f "$home/.venv/.java_home" ]; then
    JAVA_HOME=$(cat "$home/.venv/.java_home")
    export JAVA_HOME
fi
export PYSPARK_PYTHON="$home/.venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 SPARK_WORKER_DIR="$folder/work"

launch() { # name, then what spark-class runs
    name=$1
    shift
    if alive "$name"; then
        echo "spillway: $name runs already"
        return
    fi
    nohup "$spark_class" "$@" >"$folder/$name.log" 2>&1 </dev/null &
    echo $! >"$folder/$name.pid"
}

alive() {
    [ -f "$folder/$1.pid" ] && kill -0 "$(cat "$folder/$1.pid")" 2>/dev/null
}

names() {
    for file in "$folder"/*.pid; do
        [ -e "$file" ] && basename "$file" .pid
    done
    return 0
}

case "${1:-}" in
start)
    [ -x "$spark_class" ] || { echo "spillway: no environment yet; run: make setup" >&2; exit 1; }
    mkdir -p "$folder/work"
    launch master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$port" --webui-port 0
    number=1
    while [ "$number" -le "${2:-1}" ]; do
        launch "worker-$number" org.apache.spark.deploy.worker.Worker \
            --host 127.0.0.1 --webui-port 0 --cores "$cores" --memory "$memory" "spark://127.0.0.1:$port"
        number=$((number + 1))
    done
    echo "spillway: logs in $folder; point the DAGs here with the connection"
    echo "  airflow connections add spark_default --conn-json '{\"conn_type\": \"spark\", \"host\": \"spark://127.0.0.1\", \"port\": $port}'"
    echo "or for one run: AIRFLOW_CONN_SPARK_DEFAULT='{\"conn_type\": \"spark\", \"host\": \"spark://127.0.0.1\", \"port\": $port}' make run"
    ;;
status)
    for name in $(names); do
        if alive "$name"; then echo "spillway: $name runs"; else echo "spillway: $name is gone"; fi
    done
    ;;
stop)
    for name in $(names); do
        if alive "$name"; then kill "$(cat "$folder/$name.pid")"; fi
        rm -f "$folder/$name.pid"
    done
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

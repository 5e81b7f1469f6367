module.exports = () => console.log("installed");
